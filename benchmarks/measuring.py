"""Measurement tools for the benchmarks: machine description, CPU and memory of processes,
quantiles, an HTTP client."""

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
    """Conditions of this run: versions, CPU model, cores, and the load before it."""
    try:
        about = Path("/proc/cpuinfo").read_text()
        model = next(
            line.partition(":")[2].strip() for line in about.splitlines() if "model name" in line
        )
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
    """CPU seconds of all threads of a process, from the scheduler's statistics in nanoseconds. 0 if
    it has ended, as Postgres' connection and maintenance processes may do at any time."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # a thread that has just ended
            continue
    return total / 1e9


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(word) for word in task.read_text().split()]
    return found


def pss_mb(pid: int) -> float:
    """Proportional set size in MiB: a page shared by n processes counts as 1/n."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory in MiB. ``RssAnon`` excludes file pages, which processes share."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and maximum, in milliseconds."""
    if not seconds:
        return dict.fromkeys(("p50", "p90", "p99", "max"), float("nan"))
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        name: 1000 * ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in at.items()
    }


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


class Caller:
    """HTTP/1.1 client with one persistent connection. It is cheap, so that it uses less CPU than
    the server under load."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._host = host
        self._port = port
        self._head = (
            f"Host: {host}:{port}\r\nAuthorization: Bearer {key}\r\nContent-Type: "
            "application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(
        self, method: str, path: str, body: bytes = b"", more: str = ""
    ) -> tuple[int, bytes]:
        """Returns status and body. ``more``: further header lines, each with its line end."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)

        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        response_head = await reader.readuntil(b"\r\n\r\n")
        status = int(response_head[9:12])
        lowered = response_head.lower()
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
