"""Sessions that call tasks of a Celery application: ``python examples/celery_sessions.py URL KEY``.

An agent must offer the runtime celery with the application of ``examples/celery_app``. The command
of a session is that of ``celery call``: the name of a task, then --args, --kwargs and --queue.
"""

import asyncio
import json
import sys

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.sdk import Client


async def main(url: str, key: str) -> None:
    calls = {
        "train": ["tasks.train", "--args", json.dumps([3]), "--kwargs", json.dumps({"rate": 0.2})],
        "fail": ["tasks.fail", "--args", json.dumps(["no such layer"]), "--queue", "small"],
    }
    async with Client(url, key) as client:
        for name, command in calls.items():
            fields = {"name": name, "runtime": "celery", "command": command}
            fields |= {"resources": {"cpu": 0.1, "mem": "64MiB"}}
            await client.create_session(SessionSpec.model_validate(fields))

        for name in calls:
            view = await client.wait_session(
                name, lambda view: view.status in TERMINAL, timeout_s=120
            )
            lines = b"".join([piece async for piece in client.logs(name)]).decode().splitlines()
            print(name, view.result, lines[-1])


asyncio.run(main(*sys.argv[1:3]))
