"""Cluster networks (WireGuard): which nodes can connect containers that run on several nodes."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.addresses import free_port

from moorage.agent.runtimes import CreateFailed, Launch, wireguard
from moorage.agent.runtimes.base import Overlay
from moorage.common.model.ids import KernelId

# The links of a kernel with WireGuard are directories here.
IP = """#!/bin/sh
case "$2" in
add) mkdir "$LINKS/$3" && read line < "$LINKS.pipe" ;;
delete) rmdir "$LINKS/$3" ;;
esac
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with WireGuard in its kernel, and without wireguard-go. ``ip link add`` waits for a
    line in ``links.pipe``."""
    programs = tmp_path / "bin"
    links = tmp_path / "links"
    programs.mkdir()
    links.mkdir()
    os.mkfifo(tmp_path / "links.pipe")
    for name, text in (("ip", IP), ("wg", "#!/bin/sh\n"), ("nsenter", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    for name in ("mkdir", "rmdir"):
        (programs / name).symlink_to(f"/bin/{name}")

    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("LINKS", str(links))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_several_containers_may_be_checked_at_once(node: Path) -> None:
    """Like those of one cluster."""
    with ThreadPoolExecutor() as pool:
        checks = [pool.submit(wireguard.missing_requirement) for _ in range(3)]
        pipe = os.open(node / "links.pipe", os.O_RDWR)

        # All probes exist before one is deleted, unless one has failed.
        while len(list((node / "links").iterdir())) < len(checks) and not any(
            c.done() for c in checks
        ):
            time.sleep(0.01)

        os.write(pipe, b"go\n" * len(checks))
        assert [one.result() for one in checks] == [""] * len(checks)
        os.close(pipe)

    assert list((node / "links").iterdir()) == []


def launch(port: int) -> Launch:
    return Launch(
        KernelId("k"),
        ("x",),
        env={},
        port=0,
        stop_grace_s=1.0,
        overlay=Overlay("key", "100.127.0.1", port, ()),
    )


async def test_node_without_ipv6_is_usable(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def __init__(self, family: int = -1, kind: int = -1, *rest: object) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, kind)

    monkeypatch.setattr(wireguard, "missing_requirement", lambda: "")
    monkeypatch.setattr(socket, "socket", Socket)
    assert await wireguard.check(launch(free_port())) == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_port_that_is_taken_is_told(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wireguard, "missing_requirement", lambda: "")
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
    ) as taken:
        try:
            taken.bind((host, 0))
        except OSError as error:
            pytest.skip(f"NOT TESTED: {host}: {error}")

        port = taken.getsockname()[1]
        with pytest.raises(CreateFailed, match=f"UDP port {port} of this node"):
            await wireguard.check(launch(port))
