"""The GPU as the driver and its tools see it, for comparison with what Moorage reports."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.gpu.kit.report import REHEARSAL, NotRun

PROGRAMS = Path(__file__).resolve().parents[1]
HOLDER = str(PROGRAMS / "cuda_program.py")
LOAD = str(PROGRAMS / "torch_load.py")
ENGINE = str(PROGRAMS / "torch_engine.py")
GIB = 1024**3
MIB = 1024**2


def torch_python() -> str:
    """The Python for programs on the GPU."""
    found = os.environ.get("TORCH_PYTHON", "")
    if not found:
        raise NotRun("no Python with torch and aiohttp was found: set TORCH_PYTHON")
    return shutil.which(found) or found


def call(*command: str, timeout: float = 20, env: dict[str, str] | None = None) -> str:
    """The output of a command, or why there is none."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=env,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"

    return done.stdout + (f"\n(exit {done.returncode}) {done.stderr}" if done.returncode else "")


def smi(fields: str, of: str = "gpu") -> list[list[str]]:
    """Rows from nvidia-smi. Raises ``NotRun`` if it is missing."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise NotRun("there is no nvidia-smi")
    shown = call(program, f"--query-{of}={fields}", "--format=csv,noheader,nounits")
    return [
        [field.strip() for field in line.split(",")] for line in shown.splitlines() if line.strip()
    ]


def nvml() -> Any:
    """The initialised library, or None in a rehearsal."""
    if REHEARSAL:
        return None

    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NotRun(f"the NVIDIA driver does not answer: {error}") from None

    return pynvml


class Watch:
    """Samples the first GPU in a thread: ``samples`` are (wall clock, bytes used, utilisation,
    watts)."""

    def __init__(self, interval_s: float = 0.02) -> None:
        self._nvml = nvml()
        self._interval_s = interval_s
        self.samples: list[tuple[float, int, int, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._nvml is not None:
            self._thread.join(5)

    def _run(self) -> None:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
        while not self._over.wait(self._interval_s):
            with contextlib.suppress(self._nvml.NVMLError):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle, self._nvml.nvmlMemory_v2)
                rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
                power = self._nvml.nvmlDeviceGetPowerUsage(handle)
                self.samples.append((time.time(), int(memory.used), int(rates.gpu), power / 1000))

    def first_below(self, size: int, since: float) -> float | None:
        """When the memory in use first fell below ``size`` after ``since``."""
        return next((at for at, used, _, _ in self.samples if at >= since and used < size), None)

    def between(self, start: float, end: float) -> list[tuple[float, int, int, float]]:
        return [sample for sample in self.samples if start <= sample[0] <= end]

    def save(self, path: Path) -> None:
        lines = (f"{at:.3f} {used} {gpu} {watts:.1f}\n" for at, used, gpu, watts in self.samples)
        path.write_text("at used utilisation watts\n" + "".join(lines))


def process_samples(since: int) -> list[tuple[int, int, int]]:
    """NVML's data on the processes on the first GPU since then: pid, microseconds and SM
    utilisation."""
    library = nvml()
    if library is None:
        return []

    handle = library.nvmlDeviceGetHandleByIndex(0)
    try:
        samples = library.nvmlDeviceGetProcessUtilization(handle, since)
    except library.NVMLError:
        return []

    return [(int(one.pid), int(one.timeStamp), int(one.smUtil)) for one in samples]


def used_memory() -> int | None:
    """Bytes in use on the first GPU, or None in a rehearsal."""
    library = nvml()
    if library is None:
        return None
    handle = library.nvmlDeviceGetHandleByIndex(0)
    return int(library.nvmlDeviceGetMemoryInfo(handle, library.nvmlMemory_v2).used)
