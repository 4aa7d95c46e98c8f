"""Usage of a session, a price and a budget: ``python examples/usage.py URL KEY``."""

import asyncio
import sys

from moorage.sdk import ApiError, Client, SessionSpec
from moorage.sdk.types import TERMINAL, BudgetSpec, PriceSpec

WORK = SessionSpec(
    name="metered",
    command=["python3", "-c", "import time; time.sleep(3)"],
    resources={"cpu": 0.5, "mem": "64MiB"},
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        # 0.01 per CPU second
        await client.prices.set(PriceSpec(unit="cpu", price=36_000_000))
        made = await client.sessions.create(WORK)
        await client.sessions.wait(made.id, lambda view: view.status in TERMINAL, timeout_s=60)
        [used] = [
            one for one in await client.usage.list(by=["session"]) if one.session_id == made.id
        ]
        seconds = used.cpu_ms // 500
        print("ran for about 3 seconds:", 2 <= seconds <= 10)
        print(
            "memory and cost follow:",
            used.memory_mib_s == 64 * seconds,
            used.cost == 5000 * seconds,
        )
        await client.budgets.set("project", made.project, "cpu", "day", spec=BudgetSpec(hard=1))

        for _ in range(60):  # the manager aggregates every ten seconds
            [budget] = await client.budgets.list()
            if budget.level == "hard":
                break

            await asyncio.sleep(0.5)

        try:
            await client.sessions.create(WORK)
        except ApiError as error:
            print("refused:", error.status, error.problem.code)

        await client.budgets.delete("project", made.project, "cpu", "day")


asyncio.run(main(*sys.argv[1:3]))
