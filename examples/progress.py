"""A program that reports its progress: ``python examples/progress.py URL KEY``.

The program needs no client: it appends a line of JSON to the file that ``MOORAGE_PROGRESS`` names.
In Python, ``moorage.progress(step=120, of=300)`` does this.
"""

import asyncio
import sys

from moorage.common.views.resources import SessionView
from moorage.sdk import Client, SessionSpec, Status

PROGRAM = """
echo '{"fraction": 0.4, "step": 120, "of": 300, "message": "epoch 2"}' >> "$MOORAGE_PROGRESS"
exec sleep 300
"""
# tqdm bars on standard error, read from the log.
BAR = r"""printf '\r 50%%|#####     | 5/10 [00:05<00:05,  1.00s/it]' >&2; exec sleep 300"""


def has_progress(view: SessionView) -> bool:
    return any(kernel.progress is not None for kernel in view.kernels)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        for name, program, env in (
            ("file", PROGRAM, {}),
            ("bar", BAR, {"MOORAGE_PROGRESS_FROM": "log"}),
        ):
            fields = {"name": name, "command": ["sh", "-c", program], "env": env}
            fields |= {"resources": {"cpu": 0.1, "mem": "16MiB"}}
            await client.sessions.create(SessionSpec.model_validate(fields))
            view = await client.sessions.wait(name, has_progress)
            progress = view.kernels[0].progress
            assert progress is not None
            print(
                f"{name}: {progress.fraction:.0%}, step {progress.step} of {progress.of}",
                progress.message,
            )

        for name in ("file", "bar"):
            await client.sessions.stop(name)
            await client.sessions.wait(name, lambda view: view.status is Status.TERMINATED)


asyncio.run(main(*sys.argv[1:3]))
