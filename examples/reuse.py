"""Equal requests that share one run: ``python examples/reuse.py URL KEY``."""

import asyncio
import sys

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.sdk import Client

PREPARE = SessionSpec(
    command=["python3", "-c", "import time; time.sleep(1); print('prepared')"],
    resources={"cpu": 0.1, "mem": "16MiB"},
    reuse="both",
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        made = [await client.create_session(PREPARE) for _ in range(3)]
        print("runs:", sum(session.adopted_from is None for session in made))
        for session in made:
            ended = await client.wait_session(
                session.id, lambda view: view.status in TERMINAL, timeout_s=60
            )
            log = b"".join([piece async for piece in client.logs(session.id)]).decode().strip()
            print(ended.status, ended.result, log)

        again = await client.create_session(PREPARE)
        print("at once:", again.status, again.result)


asyncio.run(main(*sys.argv[1:3]))
