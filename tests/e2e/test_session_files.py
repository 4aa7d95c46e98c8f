"""The files of a running session over REST: listed, read and stored, through the real manager, agent
and shell."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .harness import Platform, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
# Far more than what the components may buffer.
LARGE = 300_000_000
BUFFERED = 60_000_000
NAMES = (
    "<img src=x onerror=alert(1)>.txt",
    "\u202etxt.exe",
    "x" * 200,
    "a\nb",
    "-n",
    "100%25 #?&;.txt",
)


async def _start(platform: Platform, name: str) -> Path:
    await asyncio.to_thread(platform.run, "start", "--name", name, *SMALL)
    found = await asyncio.to_thread(platform.run, "exec", name, "--", "pwd")
    return Path(found.stdout.strip())


def _url(platform: Platform, session: str, path: str = "") -> str:
    return f"{platform.url}/v1/sessions/{session}/files{path}"


async def _list(http: aiohttp.ClientSession, platform: Platform, session: str, path: str) -> Any:
    async with http.get(_url(platform, session), params={"path": path}) as answer:
        return await answer.json()


@pytest.mark.timeout(180)
async def test_files_are_listed_read_and_stored(one_node: Platform) -> None:
    platform = one_node
    workdir = await _start(platform, "files")
    content = _url(platform, "files", "/content")
    async with aiohttp.ClientSession(headers=platform.auth) as http:
        for number, name in enumerate(NAMES):
            data = os.urandom(number * 70_000)
            path = f"{workdir}/{name}"
            async with http.put(content, params={"path": path}, data=data) as answer:
                assert (answer.status, await answer.json()) == (
                    200,
                    {"path": path, "size": len(data)},
                )

            assert Path(path).read_bytes() == data
            async with http.get(content, params={"path": path}) as answer:
                assert (answer.status, answer.content_length) == (200, len(data))
                assert answer.content_disposition is not None
                assert answer.content_disposition.type == "attachment"
                assert answer.content_disposition.filename == name
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.content_type == "application/octet-stream"
                assert await answer.read() == data

        (workdir / "sub").mkdir()
        (workdir / "sub" / "link").symlink_to(f"../{NAMES[4]}")
        listing = await _list(http, platform, "files", ".")
        assert listing["path"] == str(workdir)
        assert listing["complete"]
        sizes = {file["name"]: file["size"] for file in listing["files"]}
        assert sizes == {name: n * 70_000 for n, name in enumerate(NAMES)} | {"sub": None}
        [link] = (await _list(http, platform, "files", "sub"))["files"]
        assert (link["name"], link["kind"], link["link"], link["size"]) == (
            *("link", "file"),
            *(True, 4 * 70_000),
        )

        async with http.get(content, params={"path": f"{workdir}/sub/"}) as answer:
            assert answer.content_disposition is not None
            assert answer.content_disposition.filename == "sub.tar"
            with tarfile.open(fileobj=io.BytesIO(await answer.read())) as tar:
                assert tar.getnames() == ["./sub", "./sub/link"]

        await _refusals(http, platform, workdir)


async def _refusals(http: aiohttp.ClientSession, platform: Platform, workdir: Path) -> None:
    content = _url(platform, "files", "/content")
    os.mkfifo(workdir / "pipe")
    for path, status, detail in (
        ("nothing", 404, "there is no nothing, in session 'files'"),
        ("pipe", 409, "'pipe' is neither a file"),
        ("../../../../../../../../etc/nothing", 404, "there is no ../"),
    ):
        async with http.get(content, params={"path": path}) as answer:
            problem = await answer.json()
            assert (answer.status, detail in problem["detail"]) == (status, True), problem

    for path, status, detail in (
        ("nothing/x", 404, "there is no directory nothing"),
        ("sub/..", 422, "does not end in the name of a file"),
        ("sub/", 422, "does not end in the name of a file"),
        ("/proc/x", 409, "failed to copy"),
    ):
        async with http.put(content, params={"path": path}, data=b"x" * 500_000) as answer:
            problem = await answer.json()
            assert (answer.status, detail in problem["detail"]) == (status, True), problem

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    async with http.put(content, params={"path": "x"}, data=pieces()) as answer:
        assert (answer.status, (await answer.json())["code"]) == (411, "length-required")

    for path, status in (("nothing", 404), ("-n", 404), ("", 422)):
        async with http.get(_url(platform, "files"), params={"path": path}) as answer:
            assert answer.status == status, await answer.text()

    assert not (workdir / "x").exists()
    assert list(workdir.glob("**/.moorage-cp-*")) == []


def _most_memory(pid: int) -> int:
    """The most memory that a process has had since ``_forget_memory``, in bytes."""
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(300)
async def test_large_files_are_not_kept_in_memory(one_node: Platform, tmp_path: Path) -> None:
    platform = one_node
    workdir = await _start(platform, "large")
    sent = tmp_path / "sent"
    sent.write_bytes(os.urandom(1_000_000) * (LARGE // 1_000_000))
    content = _url(platform, "large", "/content")
    pid = platform.pid("up")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the most so far is what there is now
    before = _most_memory(pid)
    async with aiohttp.ClientSession(headers=platform.auth) as http:
        with sent.open("rb") as file:
            async with http.put(content, params={"path": f"{workdir}/x"}, data=file) as answer:
                assert (await answer.json())["size"] == LARGE

        assert (workdir / "x").stat().st_size == LARGE
        received = 0
        async with http.get(content, params={"path": f"{workdir}/x"}) as answer:
            async for piece in answer.content.iter_any():
                if not received:
                    await asyncio.sleep(1)  # a reader that is slow at first
                received += len(piece)

        assert received == LARGE

    assert _most_memory(pid) - before < BUFFERED


async def _read_on(answer: aiohttp.ClientResponse) -> None:
    while await answer.content.readany():
        pass


@pytest.mark.timeout(180)
async def test_a_session_that_ends_cuts_its_transfers(one_node: Platform) -> None:
    platform = one_node
    workdir = await _start(platform, "ending")
    with (workdir / "large").open("wb") as file:
        file.truncate(LARGE)

    content = _url(platform, "ending", "/content")
    goes_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        await goes_on.wait()
        yield b"x" * 100_000

    async def some() -> bool:
        return any(p.is_file() for p in workdir.glob(".moorage-cp-*/*"))

    async with aiohttp.ClientSession(headers=platform.auth) as http:
        length = {"Content-Length": "1000000"}
        storing = asyncio.ensure_future(
            http.put(content, params={"path": f"{workdir}/x"}, data=slowly(), headers=length)
        )
        try:
            async with http.get(content, params={"path": f"{workdir}/large"}) as answer:
                assert answer.content_length == LARGE
                await until("the copy has begun", some)
                stopped = await asyncio.to_thread(platform.run, "stop", "ending")
                assert stopped.returncode == 0, stopped.stderr
                with pytest.raises(aiohttp.ClientError):
                    await _read_on(answer)

            refused = await storing
            assert (refused.status, (await refused.json())["code"]) == (409, "conflict")
        finally:
            goes_on.set()
            storing.cancel()

        async with http.get(_url(platform, "ending")) as answer:
            assert answer.status == 409
            assert "is not running" in (await answer.json())["detail"]
