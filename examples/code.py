"""Code in an interactive session: ``python examples/code.py URL KEY SESSION``."""

import asyncio
import sys

from moorage.sdk import Client, SyncSession


async def main(url: str, key: str, name: str) -> None:
    async with Client(url, key) as client:
        session = client.session(name)
        await session.execute("import math\nradius = 2")
        area = await session.execute("math.pi * radius ** 2")  # what was defined is still there
        print("area", area.results[0]["text/plain"])

        shown = await session.execute("from IPython.display import HTML; HTML('<b>bold</b>')")
        print("html", shown.results[0]["text/html"])

        asked = await session.execute(
            "print('hello', input('name? '))", on_input=lambda prompt, _: "Ada"
        )
        print(asked.stdout, end="")

        failed = await session.execute("1 / 0")
        print("failed with", failed.exit_code, failed.error and failed.error["name"])

        endless = await session.execute("while True: pass", timeout_s=1)
        print("endless code:", endless.status)


asyncio.run(main(*sys.argv[1:4]))

with SyncSession(*sys.argv[1:4]) as session:
    print("without asyncio", session.execute("radius").results[0]["text/plain"])
