"""OpenSSH with sessions through a proxy's SSH address: commands, ports, refusals, revocation,
limits."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.addresses import free_port
from tests.e2e.harness import until
from tests.ssh.proxy_clients import SshPlatform, running_platform, started

BIG = 8 * 1024 * 1024
pytestmark = pytest.mark.ssh


@pytest.fixture(scope="module")
def platform(reachable_dir: Path) -> Iterator[SshPlatform]:
    with running_platform(reachable_dir) as made:
        yield made


@pytest.mark.timeout(240)
async def test_openssh_runs_commands_in_a_session_at_the_proxy(platform: SshPlatform) -> None:
    await platform.wait_for_ssh()
    await started(platform, "dev")
    key = platform.new_key("laptop")
    at = "default/dev@127.0.0.1"
    outcome = await platform.ssh(key, at, "echo out; echo err >&2; exit 7")
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (7, b"out\n", b"err\n")
    killed = await platform.ssh(key, "default+dev@127.0.0.1", "kill -TERM $$")
    assert killed.returncode == 128 + 15

    # Bootstrapping over standard input without a terminal, as remote editors do.
    outcome = await platform.ssh(key, "-T", at, "sh -s", stdin=b"cat <<X\nhi\nX\n")
    assert (outcome.returncode, outcome.stdout) == (0, b"hi\n")
    outcome = await platform.ssh(key, "-T", at, stdin=b"echo $0; exit 3\n")
    assert outcome.returncode == 3
    data = os.urandom(BIG)
    outcome = await platform.ssh(key, at, "cat", stdin=data)
    assert outcome.returncode == 0, outcome.stderr
    assert hashlib.sha256(outcome.stdout).digest() == hashlib.sha256(data).digest()
    outcome = await platform.ssh(key, "-tt", at, "tty && stty size")
    assert outcome.stdout.startswith(b"/dev/pts/"), outcome
    listed = await asyncio.to_thread(platform.run, "keys", "list-ssh")
    assert re.search(r"laptop .* ago +[0-9.]+s ago", listed.stdout), listed.stdout


SERVER = """
import http.server, pathlib
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
pathlib.Path("page").write_bytes(b"x" * 300_000)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.timeout(240)
async def test_ports_of_a_session_are_forwarded_at_the_proxy(platform: SshPlatform) -> None:
    """As remote editors do it: a server started over SSH, with ``-D`` beside it."""
    await platform.wait_for_ssh()
    await started(platform, "web")
    key = platform.new_key("editor")
    at = "default/web@127.0.0.1"
    command = "python3 -c " + shlex.quote(SERVER)
    server = await asyncio.create_subprocess_exec(
        *platform.openssh("ssh", key, "-T", at, command),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    local = free_port()
    socks = free_port()
    forward = await asyncio.create_subprocess_exec(
        *platform.openssh(
            *(
                "ssh",
                key,
                "-N",
                "-L",
                f"127.0.0.1:{local}:127.0.0.1:{port}",
                "-D",
                f"127.0.0.1:{socks}",
                at,
            )
        )
    )
    try:
        await until("the port is open", lambda: accepts(local))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{local}") as http:
            pages = await asyncio.gather(*(page(http) for _ in range(8)))

        assert {len(text) for text in pages} == {300_000}
        request = b"GET /page HTTP/1.0\r\n\r\n"
        whole = await platform.ssh(key, "-W", f"127.0.0.1:{port}", at, stdin=request)
        assert len(whole.stdout.partition(b"\r\n\r\n")[2]) == 300_000, whole.stderr
        reader, writer = await asyncio.open_connection("127.0.0.1", socks)
        writer.write(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2) + request)
        assert len(await reader.read(-1)) > 300_000
        writer.close()
    finally:
        for process in (forward, server):
            process.terminate()
            await process.wait()


@pytest.mark.timeout(240)
async def test_ports_are_not_forwarded_from_a_session(platform: SshPlatform) -> None:
    await platform.wait_for_ssh()
    await started(platform, "closed")
    key = platform.new_key("remote")
    at = "default/closed@127.0.0.1"
    wanted = ("-R", "0:127.0.0.1:9", at, "echo goes on")
    outcome = await platform.ssh(key, *wanted)
    assert (outcome.returncode, outcome.stdout) == (0, b"goes on\n")
    outcome = await platform.ssh(key, "-o", "ExitOnForwardFailure=yes", *wanted)
    assert (outcome.returncode, outcome.stdout) == (255, b"")
    assert b"remote port forwarding failed" in outcome.stderr


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


@pytest.mark.timeout(240)
async def test_keys_are_refused_and_removed_at_once(platform: SshPlatform) -> None:
    await platform.wait_for_ssh()
    await started(platform, "mine")
    unknown = platform.new_key("unknown", registered=False)
    at = "default/mine@127.0.0.1"
    for key, login in ((unknown, at), (platform.new_key("known"), "default/absent@127.0.0.1")):
        refused = await platform.ssh(key, login, "true")
        assert (refused.returncode, b"Permission denied (publickey)" in refused.stderr) == (
            255,
            True,
        )

    key = platform.new_key("leaked")
    open_channel = await asyncio.create_subprocess_exec(
        *platform.openssh("ssh", key, at, "echo ready; exec sleep 600"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert open_channel.stdout is not None
    assert await open_channel.stdout.readline() == b"ready\n"
    removed = await asyncio.to_thread(platform.run, "keys", "remove-ssh", "leaked")
    assert removed.returncode == 0, removed.stderr
    _, said = await asyncio.wait_for(open_channel.communicate(), 10)
    assert b"may no longer use the session" in said
    assert (await platform.ssh(key, at, "true")).returncode == 255
    metrics = await asyncio.to_thread(_metrics, platform)
    assert float(re.findall(r'ssh_logins_total{outcome="failed"} (\S+)', metrics)[0]) >= 3


def _metrics(platform: SshPlatform) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{platform.internal_url}/metrics") as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.timeout(240)
async def test_connections_without_a_login_are_few_and_short(platform: SshPlatform) -> None:
    await platform.wait_for_ssh()
    idle = [await asyncio.open_connection("127.0.0.1", platform.ssh_port) for _ in range(6)]
    try:
        async with asyncio.timeout(10):
            greetings = await asyncio.gather(*(reader.readline() for reader, _ in idle))

        assert [one.startswith(b"SSH-2.0-") for one in greetings].count(True) == 5
        reader, _ = idle[0]
        async with asyncio.timeout(30):  # proxy.ssh_login_timeout_s is 20
            assert await reader.read() is not None
    finally:
        for _, writer in idle:
            writer.close()
