"""Sessions from a template: ``python examples/templates.py URL KEY``."""

import asyncio
import sys
import tomllib
from pathlib import Path

from moorage.sdk import Client
from moorage.sdk.types import TemplateSpec


async def main(url: str, key: str) -> None:
    template = TemplateSpec.model_validate(
        tomllib.loads(Path(__file__).with_name("train.toml").read_text())
    )
    async with Client(url, key) as client:
        version = await client.templates.put("train", template)
        print("stored", version.ref)
        session = await client.templates.start("train", {"epochs": 5}, {"env": {"SEED": "1"}})
        print(
            "started", session.name, "from", session.template, "with", session.spec.size, "kernels"
        )
        async for piece in client.sessions.logs(session.id, follow=True):
            sys.stdout.buffer.write(piece)


asyncio.run(main(*sys.argv[1:3]))
