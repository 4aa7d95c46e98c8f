"""A session that asks for GPUs, on a node without one: ``python examples/cpu_slots.py URL KEY``.

An agent of the platform has ``agent.inventory = "auto+cpu-slots:2"``.
"""

import asyncio
import sys

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.sdk import Client

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
        await client.create_session(SessionSpec.model_validate(spec))
        ended = await client.wait_session(
            "gpu-job", lambda view: view.status in TERMINAL, timeout_s=60
        )
        [kernel] = ended.kernels
        agent = await client.get_agent(kernel.agent_id or "")
        models = {
            offer.device_id: offer.model for offer in agent.offers if offer.slot == "cuda.device"
        }
        for device in kernel.devices:
            if device.slot == "cuda.device":
                print("got", device.device_id, "of model", models[device.device_id])

        log = b"".join([piece async for piece in client.logs("gpu-job")])
        print(log.decode().strip())


asyncio.run(main(*sys.argv[1:3]))
