"""Equal requests that share one run: ``python examples/reuse.py URL KEY``."""

import asyncio
import sys

from moorage.sdk import Client, SessionSpec
from moorage.sdk.types import TERMINAL

PREPARE = SessionSpec(
    command=["python3", "-c", "import time; time.sleep(1); print('prepared')"],
    resources={"cpu": 0.1, "mem": "16MiB"},
    reuse="both",
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        made = [await client.sessions.create(PREPARE) for _ in range(3)]
        print("runs:", sum(session.adopted_from is None for session in made))
        for session in made:
            ended = await client.sessions.wait(
                session.id, lambda view: view.status in TERMINAL, timeout_s=60
            )
            log = (
                b"".join([piece async for piece in client.sessions.logs(session.id)])
                .decode()
                .strip()
            )
            print(ended.status, ended.result, log)

        again = await client.sessions.create(PREPARE)
        print("at once:", again.status, again.result)


asyncio.run(main(*sys.argv[1:3]))
