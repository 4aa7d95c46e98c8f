"""A session that requests GPUs, on a node without one: ``python examples/cpu_slots.py URL KEY``.

One of the platform's agents must have ``agent.inventory = "auto+cpu-slots:2"``.
"""

import asyncio
import sys

from moorage.sdk import Client, SessionSpec
from moorage.sdk.types import TERMINAL

PROGRAM = """
import os
gpus = os.environ["CUDA_VISIBLE_DEVICES"]
print("computes on", f"GPUs {gpus}" if gpus else "the CPU")
"""


async def main(url: str, key: str) -> None:
    spec = {
        "name": "gpu-job",
        "command": ["python3", "-c", PROGRAM],
        "resources": {"cuda.device": 2, "cpu": 0.1, "mem": "32MiB"},
    }
    async with Client(url, key) as client:
        await client.sessions.create(SessionSpec.model_validate(spec))
        ended = await client.sessions.wait(
            "gpu-job", lambda view: view.status in TERMINAL, timeout_s=60
        )
        [kernel] = ended.kernels
        agent = await client.agents.get(kernel.agent_id or "")
        models = {
            offer.device_id: offer.model for offer in agent.offers if offer.slot == "cuda.device"
        }
        for device in kernel.devices:
            if device.slot == "cuda.device":
                print("got", device.device_id, "of model", models[device.device_id])

        log = b"".join([piece async for piece in client.sessions.logs("gpu-job")])
        print(log.decode().strip())


asyncio.run(main(*sys.argv[1:3]))
