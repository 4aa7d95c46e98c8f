"""A quality of service: a higher priority, for one short session of each user at a time.

``python examples/qos.py URL KEY``, with an administrator's key.
"""

import asyncio
import sys

from moorage.common.model.status import TERMINAL
from moorage.common.views.resources import SessionView
from moorage.sdk import ApiError, Client
from moorage.sdk.types import QosOptions, SessionSpec

DEBUG = QosOptions(
    description="Short runs to try something",
    priority=50,
    max_time_s=600,
    max_running_per_user=1,
    price_factor=2,
)


def session(name: str, timeout_s: float | None = None) -> SessionSpec:
    return SessionSpec(
        name=name,
        command=["sleep", "60"],
        resources={"cpu": 0.1, "mem": "16MiB"},
        timeout_s=timeout_s,
        stop_grace_s=0,
        qos="debug",
    )


def is_waiting_for_quota(view: SessionView) -> bool:
    return view.hold is not None and view.hold.reason == "quota"


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        await client.qos.set("debug", DEBUG)
        first = await client.sessions.create(session("first"))
        print(f"first: priority {first.priority}, time limit {first.spec.timeout_s:g} s")
        await client.sessions.wait("first", lambda view: view.status == "RUNNING", timeout_s=60)

        await client.sessions.create(session("second"))
        second = await client.sessions.wait("second", is_waiting_for_quota, timeout_s=60)
        assert second.hold is not None
        print(f"second: {second.hold.refusals[0]}")

        try:
            await client.sessions.create(session("long", timeout_s=3600))
        except ApiError as error:
            print(f"long: {error.status} {error.message}")

        for name in ("first", "second"):
            await client.sessions.stop(name)
            await client.sessions.wait(name, lambda view: view.status in TERMINAL, timeout_s=60)
        await client.qos.delete("debug")


asyncio.run(main(*sys.argv[1:3]))
