"""Downloads and serves a GGUF model by its id on a hub: ``python examples/models.py URL KEY
MODEL``."""

import asyncio
import sys

from moorage.common.views.endpoints import EndpointView
from moorage.sdk import Client
from moorage.sdk.types import EndpointSpec


async def main(url: str, key: str, model: str) -> None:
    spec = EndpointSpec(
        name="from-hub",
        engine="llamacpp",
        model=model,
        args=["--ctx-size=512"],
        resources={"cpu": 0.1, "mem": "64MiB"},
    )

    def is_ready(view: EndpointView) -> bool:
        for replica in view.sessions:
            if replica.state == "loading" and replica.detail:
                print(replica.detail, file=sys.stderr)  # downloading: 43% of 610MiB
        return view.ready > 0

    async with Client(url, key) as client:
        await client.endpoints.create(spec)
        ready = await client.endpoints.wait(spec.name, is_ready, timeout_s=60)
        print("ready:", ready.ready, "of", ready.replicas)
        await client.endpoints.delete(spec.name)


asyncio.run(main(*sys.argv[1:4]))
