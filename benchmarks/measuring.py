"""What the benchmarks share: the machine in words, CPU time of processes, summaries, a cheap HTTP client."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import moorage


def machine() -> dict[str, Any]:
    """What a figure of this run is worth: processor, cores, and how busy it was before."""
    try:
        about = Path("/proc/cpuinfo").read_text()
        model = next(line.partition(":")[2].strip() for line in about.splitlines() if "model name" in line)
    except (OSError, StopIteration):
        model = platform.machine()
    return {
        "moorage": moorage.__version__,
        "python": platform.python_version(),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def machine_line(found: dict[str, Any]) -> str:
    return (
        f"{found['cpu']}, {found['cores']} cores, shared machine (load {found['load_before']}), "
        f"Python {found['python']}, Moorage {found['moorage']}, {found['at']}"
    )


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, all threads, by the scheduler's own count (nanoseconds)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # a thread that has just ended
            continue
    return total / 1e9


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(word) for word in task.read_text().split()]
    return found


def pss_mb(pid: int) -> float:
    """What the process adds to the machine: shared pages count by how many share them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    """All that is resident; ``RssAnon``: without the pages of program files, which processes share."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and the worst, in milliseconds."""
    if not seconds:
        return dict.fromkeys(("p50", "p90", "p99", "max"), float("nan"))
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: 1000 * ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in at.items()}


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


class Caller:
    """One kept-alive HTTP/1.1 connection: cheap, so that the load costs less than what it loads."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._host, self._port = host, port
        self._head = (
            f"Host: {host}:{port}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"", more: str = "") -> tuple[int, bytes]:
        """The answer's status and body. ``more``: further header lines, each with its line end."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        status = int(answered[9:12])
        lowered = answered.lower()
        start = lowered.index(b"content-length:") + 15
        length = int(lowered[start : lowered.index(b"\r\n", start)])
        content = await reader.readexactly(length)
        if b"connection: close" in lowered:
            self.close()
        return status, content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
