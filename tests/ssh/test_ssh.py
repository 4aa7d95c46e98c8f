"""OpenSSH's own programs with a session: shells, commands, files, and refusals."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.addresses import free_port
from tests.e2e.harness import Platform, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=256MiB")
BIG = 8 * 1024 * 1024
pytestmark = pytest.mark.ssh


def options() -> list[str]:
    proxy = shlex.join([sys.executable, "-m", "moorage", "ssh", "--stdio"]) + " %n"
    return [
        *("-o", f"ProxyCommand={proxy}", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"),
        *("-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"),
    ]


def openssh(
    platform: Platform, *arguments: str | Path, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = [str(part) for part in arguments]
    return subprocess.run(
        [command[0], *options(), *command[1:]] if command[0] != "rsync" else command,
        env=platform.env,
        input=stdin,
        capture_output=True,
        timeout=90,
        check=False,
    )


async def started(platform: Platform, name: str) -> None:
    done = await asyncio.to_thread(platform.run, "start", "--name", name, *SMALL)
    assert done.returncode == 0, done.stderr


@pytest.mark.smoke
@pytest.mark.timeout(240)
async def test_openssh_runs_commands_in_a_session(one_node: Platform) -> None:
    await started(one_node, "dev")
    outcome = await asyncio.to_thread(
        openssh, one_node, "ssh", "dev", "echo out; echo err >&2; exit 7"
    )
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (7, b"out\n", b"err\n")

    # Bootstrapping over standard input without a terminal, as remote editors do.
    outcome = await asyncio.to_thread(
        openssh, one_node, "ssh", "-T", "dev", "sh -s", stdin=b"cat <<X\nhi\nX\n"
    )
    assert (outcome.returncode, outcome.stdout) == (0, b"hi\n")
    outcome = await asyncio.to_thread(
        openssh, one_node, "ssh", "-T", "dev", stdin=b"echo $0; exit 3\n"
    )
    assert outcome.returncode == 3
    data = os.urandom(BIG)
    outcome = await asyncio.to_thread(openssh, one_node, "ssh", "dev", "cat", stdin=data)
    assert outcome.returncode == 0, outcome.stderr
    assert hashlib.sha256(outcome.stdout).digest() == hashlib.sha256(data).digest()
    outcome = await asyncio.to_thread(openssh, one_node, "ssh", "-tt", "dev", "tty && stty size")
    assert outcome.stdout.startswith(b"/dev/pts/"), outcome
    own = await asyncio.to_thread(one_node.run, "ssh", "dev", "--", "echo", "$((6 * 7))")
    assert (own.returncode, own.stdout) == (0, "42\n"), own.stderr


@pytest.mark.timeout(180)
async def test_openssh_is_told_why_a_session_refuses(one_node: Platform) -> None:
    outcome = await asyncio.to_thread(openssh, one_node, "ssh", "absent", "true")
    assert outcome.returncode == 255
    assert b"absent" in outcome.stderr
    assert b"Traceback" not in outcome.stderr
    garbage = await asyncio.to_thread(
        one_node.run, "ssh", "--stdio", "absent", stdin="GET / HTTP/1.1\r\n\r\n"
    )
    assert "Traceback" not in garbage.stderr
    refused = await asyncio.to_thread(one_node.run, "ssh", "--stdio", "absent", "--", "true")
    assert (refused.returncode, "takes no command" in refused.stderr) == (2, True), refused


@pytest.mark.timeout(240)
async def test_sftp_and_scp_copy_files(one_node: Platform, tmp_path: Path) -> None:
    await started(one_node, "files")
    source = tmp_path / "a b\n.bin"
    back = tmp_path / "back"
    source.write_bytes(os.urandom(BIG))
    folder = (
        (await asyncio.to_thread(openssh, one_node, "ssh", "files", "pwd")).stdout.decode().strip()
    )
    batch = b"-mkdir in\nls -l\npwd\n"
    listed = await asyncio.to_thread(openssh, one_node, "sftp", "-b", "-", "files", stdin=batch)
    assert listed.returncode == 0, listed.stderr
    assert f"Remote working directory: {folder}".encode() in listed.stdout
    put = await asyncio.to_thread(openssh, one_node, "scp", source, "files:in/copy.bin")
    assert put.returncode == 0, put.stderr
    got = await asyncio.to_thread(openssh, one_node, "scp", "files:in/copy.bin", back)
    assert got.returncode == 0, got.stderr
    assert back.read_bytes() == source.read_bytes()
    missing = await asyncio.to_thread(openssh, one_node, "scp", "files:in/absent", back)
    assert missing.returncode != 0


@pytest.mark.timeout(240)
async def test_rsync_copies_a_tree(one_node: Platform, tmp_path: Path) -> None:
    await started(one_node, "copy")
    tree = tmp_path / "tree"
    back = tmp_path / "back"
    (tree / "deep").mkdir(parents=True)
    for number in range(50):
        (tree / "deep" / f"file {number}").write_bytes(os.urandom(10_000))

    shell = shlex.join(["ssh", *options()])
    there = await asyncio.to_thread(
        openssh, one_node, "rsync", "-a", "-e", shell, f"{tree}/", "copy:tree/"
    )
    assert there.returncode == 0, there.stderr
    again = await asyncio.to_thread(
        openssh, one_node, "rsync", "-a", "-e", shell, "copy:tree/", f"{back}/"
    )
    assert again.returncode == 0, again.stderr
    for file in (tree / "deep").iterdir():
        assert (back / "deep" / file.name).read_bytes() == file.read_bytes()


SERVER = """
import http.server, pathlib, threading
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
pathlib.Path("page").write_bytes(b"x" * 300_000)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.timeout(240)
async def test_ports_of_a_session_are_forwarded(one_node: Platform) -> None:
    """``-L`` as editors use it, ``-W``, and a port without a listener."""
    await started(one_node, "web")
    server = await asyncio.create_subprocess_exec(
        "ssh", *options(), "-T", "web", "python3 -c " + shlex.quote(SERVER),
        env=one_node.env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    local = free_port()
    forward = await asyncio.create_subprocess_exec(
        "ssh",
        *options(),
        "-N",
        "-L",
        f"127.0.0.1:{local}:127.0.0.1:{port}",
        "web",
        env=one_node.env,
    )
    try:
        await until("the port is open", lambda: accepts(local))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{local}") as http:
            pages = await asyncio.gather(*(page(http) for _ in range(12)))

        assert {len(text) for text in pages} == {300_000}
        request = b"GET /page HTTP/1.0\r\n\r\n"
        whole = await asyncio.to_thread(
            openssh, one_node, "ssh", "-W", f"127.0.0.1:{port}", "web", stdin=request
        )
        assert len(whole.stdout.partition(b"\r\n\r\n")[2]) == 300_000, whole.stderr
        nothing = await asyncio.to_thread(
            openssh, one_node, "ssh", "-W", f"127.0.0.1:{free_port()}", "web", stdin=request
        )
        assert nothing.stdout == b""
    finally:
        for process in (forward, server):
            process.terminate()
            await process.wait()


async def page(http: aiohttp.ClientSession) -> bytes:
    async with http.get("/page") as answer:
        assert answer.status == 200
        return await answer.read()


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
