"""A budget that stops an endpoint, and a greater one that starts it again.

``python examples/budgets.py URL KEY``, with the key of an administrator.
"""

import asyncio
import sys

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.budgets import BudgetSpec
from moorage.common.views.endpoints import EndpointView
from moorage.sdk import Client

# A server of any kind: one that answers to GET.
MODEL = EndpointSpec(
    name="counted",
    engine="custom",
    command=[sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"],
    probe={"path": "/"},
    resources={"cpu": 0.1, "mem": "64MiB"},
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        made = await client.create_endpoint(MODEL)
        show(
            "served",
            await client.wait_endpoint("counted", lambda view: view.ready == 1, timeout_s=60),
        )
        budget = "project", made.project, "requests", "year"
        await client.set_budget(*budget, spec=BudgetSpec(hard=0, policy="stop"))
        show("exhausted", await client.wait_endpoint("counted", is_stopped, timeout_s=60))
        await client.set_budget(*budget, spec=BudgetSpec(hard=1000, policy="stop"))
        show(
            "raised",
            await client.wait_endpoint("counted", lambda view: view.ready == 1, timeout_s=60),
        )
        await client.delete_budget(*budget)
        await client.delete_endpoint("counted")


def is_stopped(view: EndpointView) -> bool:
    return view.suspended_until is not None and view.ready == 0


def show(when: str, view: EndpointView) -> None:
    print(
        f"{when}: {view.status}, {view.ready} of {view.replicas} ready, {view.reason or 'no reason'}"
    )


asyncio.run(main(*sys.argv[1:3]))
