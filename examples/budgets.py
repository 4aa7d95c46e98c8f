"""A budget that stops an endpoint, and a larger one that starts it again.

``python examples/budgets.py URL KEY``, with an administrator's key.
"""

import asyncio
import sys

from moorage.common.views.endpoints import EndpointView
from moorage.sdk import Client
from moorage.sdk.types import BudgetSpec, EndpointSpec, Probe

# Any kind of server that answers to GET.
MODEL = EndpointSpec(
    name="counted",
    engine="custom",
    command=[sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"],
    probe=Probe(path="/"),
    resources={"cpu": 0.1, "mem": "64MiB"},
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        made = await client.endpoints.create(MODEL)
        show(
            "served",
            await client.endpoints.wait("counted", lambda view: view.ready == 1, timeout_s=60),
        )
        await allow(client, made.project, requests=0)
        show("exhausted", await client.endpoints.wait("counted", is_stopped, timeout_s=60))
        await allow(client, made.project, requests=1000)
        show(
            "raised",
            await client.endpoints.wait("counted", lambda view: view.ready == 1, timeout_s=60),
        )
        await client.budgets.delete("project", made.project, "requests", "year")
        await client.endpoints.delete("counted")


async def allow(client: Client, project: str, requests: int) -> None:
    """Allow a project this many requests per year, and stop its endpoints after that."""
    budget = BudgetSpec(hard=requests, policy="stop")
    await client.budgets.set("project", project, "requests", "year", spec=budget)


def is_stopped(view: EndpointView) -> bool:
    return view.suspended_until is not None and view.ready == 0


def show(when: str, view: EndpointView) -> None:
    print(
        f"{when}: {view.status}, {view.ready} of {view.replicas} ready, {view.reason or 'no reason'}"
    )


asyncio.run(main(*sys.argv[1:3]))
