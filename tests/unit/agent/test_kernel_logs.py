"""Kernel logs on disk: rotation, tail, following and pruning."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from moorage.agent.runtimes.process.shim_log import Log
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId

K = KernelId("k")


async def read_all(logs: LogStore, lines: int = 0) -> bytes:
    return b"".join([part async for part in logs.read(K, lines, follow=False, is_running=lambda: False)])


def rotating_log(tmp_path: Path, max_bytes: int = 50, keep: int = 2) -> tuple[LogStore, Log]:
    return LogStore(tmp_path), Log(str(tmp_path / K), max_bytes, keep)


async def test_rotation_keeps_the_newest_files(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path)
    for number in range(40):
        log.write(b"line %02d\n" % number)
    files = sorted((tmp_path / K).glob("kernel.log*"))
    assert [path.name for path in files] == ["kernel.log", "kernel.log.1", "kernel.log.2"]
    assert all(path.stat().st_size <= 50 for path in files)
    kept = await read_all(logs)
    assert kept.endswith(b"line 38\nline 39\n")
    assert kept == b"".join(b"line %02d\n" % number for number in range(40 - len(kept) // 8, 40))


@pytest.mark.parametrize("lines", [1, 5, 6, 7, 13, 1000])
async def test_last_lines_span_rotated_files(tmp_path: Path, lines: int) -> None:
    logs, log = rotating_log(tmp_path)
    for number in range(15):
        log.write(b"line %02d\n" % number)
    assert await read_all(logs, lines) == b"".join(b"line %02d\n" % n for n in range(max(0, 15 - lines), 15))


async def test_incomplete_last_line_counts(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path, 1000)
    log.write(b"one\ntwo\nthr")
    assert (await read_all(logs, 1), await read_all(logs, 2)) == (b"thr", b"two\nthr")


async def test_follow_loses_nothing_over_rotation(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path, 200, 5)
    is_running, received = True, bytearray()

    async def follow() -> None:
        async for part in logs.read(K, 0, follow=True, is_running=lambda: is_running):
            received.extend(part)

    following = asyncio.create_task(follow())
    expected = b""
    for number in range(60):
        line = b"line %03d\n" % number
        log.write(line)
        expected += line
        if number % 20 == 19:
            async with asyncio.timeout(5):
                while bytes(received) != expected:
                    await asyncio.sleep(0.01)
    is_running = False
    async with asyncio.timeout(5):
        await following
    assert bytes(received) == expected


@pytest.mark.parametrize(
    ("written", "max_bytes", "tail"),
    [
        (b"", 100, ""),
        (b"short\n", 100, "short\n"),
        (b"first\nsecond\nthird\n", 10, "third\n"),
        (b"x" * 50, 10, "x" * 10),
        (b"a\x00b\n", 100, "a\N{REPLACEMENT CHARACTER}b\n"),
        (b"cut: " + "ü".encode() * 20, 11, "ü" * 5),
        (b"\xff\xfe\xfd\xfc", 4, "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_tail_is_text_of_bounded_size(tmp_path: Path, written: bytes, max_bytes: int, tail: str) -> None:
    logs, log = rotating_log(tmp_path, 1000)
    log.write(written)
    found = logs.tail(K, max_bytes)
    assert len(found.encode()) <= max_bytes
    assert found.lstrip("\N{REPLACEMENT CHARACTER}") == tail.lstrip("\N{REPLACEMENT CHARACTER}")


def test_prune_keeps_the_newest_logs(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    for number in range(6):
        folder = tmp_path / f"k{number}"
        folder.mkdir()
        os.utime(folder, (number, number))
    logs.prune({KernelId("k0")}, keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {"k0", "k4", "k5"}


async def test_missing_log_is_empty(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    assert not logs.exists(K)
    assert (await read_all(logs), logs.tail(K, 100)) == (b"", "")
