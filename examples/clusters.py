"""A session across several nodes: ``python examples/clusters.py URL KEY``.

Each kernel runs the same program and learns its rank from its variables, as with torchrun. Rank 0
listens for the others and adds up what they send.
"""

import asyncio
import sys

from moorage.sdk import Client, SessionSpec
from moorage.sdk.types import TERMINAL

PROGRAM = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
main = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
name = os.environ["MOORAGE_CLUSTER_HOST"]
part = sum(range(rank, 100, world))
if rank == 0:
    with socket.create_server(main) as server:
        for _ in range(world - 1):
            with server.accept()[0] as other:
                sent, number = other.recv(100).decode().split()
                print(name, "received", number, "from", sent)
                part += int(number)
    print(name, "has the sum", part)
else:
    while True:
        try:
            with socket.create_connection(main) as connection:
                connection.sendall(f"{name} {part}".encode())
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(0.05)
"""


async def main(url: str, key: str) -> None:
    spec = {
        "name": "ring",
        "command": ["python3", "-c", PROGRAM],
        "resources": {"cpu": 0.1, "mem": "32MiB"},  # of each kernel
        "cluster": {"size": 2, "mode": "multi-node"},
    }
    async with Client(url, key) as client:
        await client.sessions.create(SessionSpec.model_validate(spec))
        ended = await client.sessions.wait(
            "ring", lambda view: view.status in TERMINAL, timeout_s=60
        )
        for kernel in ended.kernels:
            print(kernel.hostname, "ran on", kernel.agent_id)

        log = b"".join([piece async for piece in client.sessions.logs("ring")])
        print(log.decode().strip())
        print(ended.result, "names resolve:", ended.hostnames_resolve)


asyncio.run(main(*sys.argv[1:3]))
