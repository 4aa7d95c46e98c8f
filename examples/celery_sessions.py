"""Sessions that call tasks of a Celery application: ``python examples/celery_sessions.py URL KEY``.

An agent must offer the runtime celery with the application of ``examples/celery_app``. A session's
command is that of ``celery call``: the name of a task, then --args, --kwargs and --queue.
"""

import asyncio
import json
import sys

from moorage.sdk import Client, Resources, SessionSpec
from moorage.sdk.types import TERMINAL


async def main(url: str, key: str) -> None:
    calls = {
        "train": ["tasks.train", "--args", json.dumps([3]), "--kwargs", json.dumps({"rate": 0.2})],
        "fail": ["tasks.fail", "--args", json.dumps(["no such layer"]), "--queue", "small"],
    }
    async with Client(url, key) as client:
        for name, command in calls.items():
            small: Resources = {"cpu": 0.1, "mem": "64MiB"}
            spec = SessionSpec(name=name, runtime="celery", command=command, resources=small)
            await client.sessions.create(spec)

        for name in calls:
            view = await client.sessions.wait(
                name, lambda view: view.status in TERMINAL, timeout_s=120
            )
            log = b"".join([piece async for piece in client.sessions.logs(name)])
            print(name, view.result, log.decode().splitlines()[-1])


asyncio.run(main(*sys.argv[1:3]))
