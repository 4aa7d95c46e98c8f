"""Timestamps of container log lines, from the engine and from the copy that outlives the
container."""

from __future__ import annotations

import re
import time
from datetime import datetime

from moorage.agent.runtimes import Handle
from moorage.agent.runtimes.docker.runtime import DockerRuntime
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.logs import data_of

from .conftest import MakeRuntime, launch
from .test_limits import until_exited

# The engine passes a long line on in pieces of 16 KiB, each with its own timestamp.
LONG = 40_000
PROGRAM = (
    f"import time; print('early', flush=True); time.sleep(1.5); print('x' * {LONG}); print('late')"
)
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")


async def read(runtime: DockerRuntime, handle: Handle, wanted: LogRange) -> bytes:
    return b"".join([data async for data in data_of(runtime.log_range(handle, wanted))])


async def test_lines_have_their_times_also_after_the_container(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    began = time.time()
    assert isinstance(runtime, DockerRuntime)
    handle = await runtime.create(launch(PROGRAM))
    await until_exited(runtime, handle)
    ended = time.time()

    async def look() -> tuple[bytes, bytes, bytes]:
        stamped = await read(runtime, handle, LogRange(timestamps=True))
        times = [
            datetime.fromisoformat(found.decode()).timestamp() for found in STAMP.findall(stamped)
        ]
        assert len(times) == 3, "one for each line, the long one, too"
        assert began - 0.01 <= times[0] < times[1] - 1 < times[2] <= ended
        middle = round((times[0] + 0.7) * 1000)
        last = await read(runtime, handle, LogRange(tail_lines=1, timestamps=True))
        return stamped, await read(runtime, handle, LogRange(since_ms=middle)), last

    found = await look()
    assert STAMP.sub(b"", found[0]) == b"early\n" + b"x" * LONG + b"\nlate\n"
    assert found[1] == b"x" * LONG + b"\nlate\n"
    assert found[2] == found[0].splitlines(keepends=True)[-1]
    await runtime.destroy(handle)
    assert await look() == found
