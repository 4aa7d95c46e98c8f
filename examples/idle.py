"""Sessions that nobody uses: ``python examples/idle.py URL KEY``, with the key of an administrator.

Two sessions choose to end without traffic; a command keeps one of them in use.
"""

import asyncio
import sys

from moorage.common.model.commands import ExecSpec
from moorage.common.model.idle import IdlePolicy
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.sdk import Client

SMALL = {"cpu": 0.1, "mem": "16MiB"}


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        group = await client.get_group("default")
        options = group.options.model_copy(update={"idle": IdlePolicy(warning_s=1)})
        await client.update_group("default", options, version=group.version)

        for name in ("unused", "used"):
            fields = {
                "name": name,
                "type": "interactive",
                "resources": SMALL,
                "idle": {"traffic_s": 6},
            }
            await client.create_session(SessionSpec.model_validate(fields))
            await client.wait_session(name, lambda view: view.status is Status.RUNNING)

        async with client.exec("used", ExecSpec(command=["sleep", "300"])):
            ended = await client.wait_session(
                "unused", lambda view: view.status is Status.TERMINATED
            )
            print("unused ended:", ended.reason, ended.detail)
            print("used is", (await client.get_session("used")).status)
            view = await client.extend_session("used", 60)
            print("extended", view.extensions, "of", view.max_extensions)

        await client.stop_session("used")


asyncio.run(main(*sys.argv[1:3]))
