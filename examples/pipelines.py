"""A pipeline of three steps: ``python examples/pipelines.py URL KEY``."""

import asyncio
import sys

from moorage.sdk import Client, Resources
from moorage.sdk.pipelines import has_ended


async def main(url: str, key: str) -> None:
    small: Resources = {"cpu": 0.1, "mem": "16MiB"}
    async with Client(url, key) as client:
        async with client.pipelines.build("train") as p:
            load = p.run("sh", "-c", "echo load", name="load", resources=small)
            part = p.run(
                "sh", "-c", "echo part", name="part", after=load, array="0-3%2", resources=small
            )
            p.run("sh", "-c", "exit 3", name="judge", after=part, resources=small)
            p.run(
                "sh",
                "-c",
                "echo alarm",
                name="alarm",
                after=p.when(part, "failure"),
                resources=small,
            )

        view = await client.pipelines.get("train")
        while not has_ended(view):
            await asyncio.sleep(0.2)
            view = await client.pipelines.get("train")

    print("train", view.state)
    for step in view.steps:
        print(step.name if step.index is None else f"{step.name}[{step.index}]", step.state)


asyncio.run(main(*sys.argv[1:3]))
