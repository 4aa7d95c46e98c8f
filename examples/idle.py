"""Sessions that nobody uses: ``python examples/idle.py URL KEY``, with an administrator's key.

Two sessions choose to end without traffic; a command keeps one of them in use.
"""

import asyncio
import sys

from moorage.common.model.idle import IdlePolicy
from moorage.sdk import Client, SessionSpec, Status
from moorage.sdk.types import ExecSpec

SMALL = {"cpu": 0.1, "mem": "16MiB"}


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        group = await client.groups.get("default")
        options = group.options.model_copy(update={"idle": IdlePolicy(warning_s=1)})
        await client.groups.update("default", options, version=group.version)

        for name in ("unused", "used"):
            fields = {
                "name": name,
                "type": "interactive",
                "resources": SMALL,
                "idle": {"traffic_s": 6},
            }
            await client.sessions.create(SessionSpec.model_validate(fields))
            await client.sessions.wait(name, lambda view: view.status is Status.RUNNING)

        async with client.sessions.exec("used", ExecSpec(command=["sleep", "300"])):
            ended = await client.sessions.wait(
                "unused", lambda view: view.status is Status.TERMINATED
            )
            print("unused ended:", ended.reason, ended.detail)
            print("used is", (await client.sessions.get("used")).status)
            view = await client.sessions.extend("used", 60)
            print("extended", view.extensions, "of", view.max_extensions)

        await client.sessions.stop("used")


asyncio.run(main(*sys.argv[1:3]))
