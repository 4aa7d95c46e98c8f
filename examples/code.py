"""Code in an interactive session: ``python examples/code.py URL KEY SESSION``."""

import asyncio
import sys

from moorage.sdk import Client, SyncClient


async def main(url: str, key: str, name: str) -> None:
    async with Client(url, key) as client:
        await client.executions.run(name, "import math\nradius = 2")
        area = await client.executions.run(
            name, "math.pi * radius ** 2"
        )  # the definition is still there
        print("area", area.results[0]["text/plain"])

        shown = await client.executions.run(
            name, "from IPython.display import HTML; HTML('<b>bold</b>')"
        )
        print("html", shown.results[0]["text/html"])

        asked = await client.executions.run(
            name, "print('hello', input('name? '))", on_input=lambda prompt, _: "Ada"
        )
        print(asked.stdout, end="")

        failed = await client.executions.run(name, "1 / 0")
        print("failed with", failed.exit_code, failed.error and failed.error["name"])

        endless = await client.executions.run(name, "while True: pass", timeout_s=1)
        print("endless code:", endless.status)


asyncio.run(main(*sys.argv[1:4]))

with SyncClient(*sys.argv[1:3]) as client:
    radius = client.executions.run(sys.argv[3], "radius")
    print("without asyncio", radius.results[0]["text/plain"])
