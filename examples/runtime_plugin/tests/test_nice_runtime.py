"""The conformance suite on the runtime ``custom:nice``."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest
from nice_runtime import NiceRuntime

from moorage.agent.runtimes import Launch
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState
from moorage.testing import RuntimeConformance
from moorage.testing.runtime_conformance import until

PROGRAM = """
import os, signal, sys, time
run_s, code, stubborn, output = sys.argv[1:]
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + (0.1 if output == "busy" else 0)
while time.monotonic() < end:
    pass
print(output or os.nice(0), end="", flush=True)
time.sleep(float(run_s) if run_s else 3600)
sys.exit(int(code))
"""


class NiceHarness:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runtimes: list[NiceRuntime] = []

    def runtime(self) -> NiceRuntime:
        runtime = NiceRuntime(self._folder / "nice", LogStore(self._folder / "logs"), level=7)
        self._runtimes.append(runtime)
        return runtime

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        arguments = (seconds, str(code), "1" if stubborn else "", output)
        argv = (sys.executable, "-S", "-c", PROGRAM, *arguments)
        return Launch(KernelId(str(uuid.uuid4())), argv, {"PATH": os.environ["PATH"]}, port=4711)

    async def close(self) -> None:
        for runtime in self._runtimes:
            runtime.close()


@pytest.fixture
def new_harness(tmp_path: Path) -> NiceHarness:
    return NiceHarness(tmp_path)


class TestNice(RuntimeConformance):
    async def test_priority(self, harness: NiceHarness) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(run_s=0))
        await until(runtime, handle, ObservedState.EXITED)
        assert int(await runtime.log_tail(handle)) == min(19, os.nice(0) + 7)
