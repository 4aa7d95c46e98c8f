"""Usage in ``top``, ``describe`` and ``agents``."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run
from scripted_session import batch

from moorage.cli.commands.top import Sort, by_usage
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import AgentStatus, Status
from moorage.common.views.resource_usage import AgentStats

# Time for a program to start, draw and exit on a busy machine.
LIMIT_S = 120


def test_sessions(manager: FakeManager, moorage: Run) -> None:
    for name in ("one", "two"):
        manager.add_session(batch(name), status=Status.RUNNING, script=[])

    manager.add_session(batch("waits"))
    head, *lines = moorage("top").stdout.splitlines()
    assert head.split()[:4] == ["NAME", "CPU", "%", "MEM"]
    first, second = (line.split() for line in lines)
    assert first[:5] == ["one", "1.50", "50", "2GiB", "25"]
    assert first[5:9] == ["0.75", "40GiB", "2KiB", "1KiB"]
    assert second[0] == "two"
    assert "root" in moorage("top", "-o", "wide").stdout
    assert moorage("top", "-o", "name", "-n", "1").stdout == "one\n"
    found = json.loads(moorage("top", "-o", "json").stdout)["sessions"]
    assert [one["latest"]["cpu"] for one in found] == [1500, 1500]


def test_top_without_running_sessions(moorage: Run) -> None:
    result = moorage("top", "--once")
    assert result.stdout == ""
    assert "moorage ps" in result.stderr


def test_agents_and_devices(moorage: Run) -> None:
    _, *lines = moorage("top", "--agents").stdout.splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["node-2", "3.00", "75", "4GiB", "25"], ["node-1", "1.00", "25", "4GiB", "25"],
    ]  # fmt: skip
    _, first, _ = moorage("top", "--devices").stdout.splitlines()
    assert first.split() == [
        "node-2",
        "GPU-node-2",
        "H100",
        "42%",
        "20GiB",
        "25",
        "55",
        "°C",
        "70",
        "W",
    ]
    assert [a["id"] for a in json.loads(moorage("top", "-A", "-o", "json").stdout)["agents"]] == [
        "node-2",
        "node-1",
    ]


def agent(name: str, **used: int) -> AgentStats:
    return AgentStats(
        id=name, status=AgentStatus.ALIVE, resource_group="default", offered_cpu=1, offered_memory=1,
        devices=[], **used,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sort", "names"),
    [(Sort.CPU, "bac"), (Sort.MEMORY, "abc"), (Sort.GPU, "abc"), (Sort.RX, "abc")],
)
def test_agents_sort_by_usage(sort: Sort, names: str) -> None:
    found = [agent("c"), agent("a", cpu=1, memory=9), agent("b", cpu=2, memory=3)]
    assert [view.id for view in by_usage(found, sort)] == list(names)


def test_describe_shows_current_usage(manager: FakeManager, moorage: Run) -> None:
    session = manager.add_session(batch("job"), status=Status.RUNNING, script=[])
    assert session.view().kernels
    shown = moorage("describe", "job").stdout
    assert "uses          cpu 1.50, mem 2GiB, gpu 0.75, gpu mem 40GiB, network 2KiB/s in" in shown
    assert json.loads(moorage("describe", "job", "-o", "json").stdout)["stats"]["name"] == "job"
    assert "uses          cpu 2.00, mem 4GiB" in moorage("agents", "describe", "node-1").stdout
    manager.add_endpoint(
        EndpointSpec(name="tiny", engine="custom", command=["serve"], probe=Probe())
    )
    for one in manager.sessions:
        one.status = Status.RUNNING
        one.script = []

    shown = moorage("describe", "tiny").stdout
    assert "USES" in shown
    assert "cpu 1.50, mem 2GiB, gpu 0.75" in shown
    (stats,) = json.loads(moorage("describe", "tiny", "-o", "json").stdout)["stats"].values()
    assert stats["kernels"][0]["latest"]["cpu"] == 1500


def test_top_refreshes_on_a_terminal_until_ctrl_c(manager: FakeManager, tmp_path: Path) -> None:
    manager.add_session(batch("job"), status=Status.RUNNING, script=[])
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
    env = os.environ | {
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
        "TERM": "xterm",
    }
    command = [sys.executable, "-m", "moorage", "top", "--every", "500ms"]
    top = subprocess.Popen(command, env=env, stdin=its, stdout=its, stderr=subprocess.PIPE)
    os.close(its)
    shown = b""
    deadline = time.monotonic() + LIMIT_S
    try:
        # It is drawn repeatedly, on the terminal's alternate screen; the main screen is left as it
        # was.
        while shown.count(b"40GiB") < 2:
            assert time.monotonic() < deadline, shown
            if select.select([own], [], [], 1)[0]:
                shown += os.read(own, 65536)

        top.send_signal(signal.SIGINT)
        # The output is read until the command ends, so that it never waits for a reader.
        with suppress(OSError):
            while select.select([own], [], [], LIMIT_S)[0] and (more := os.read(own, 65536)):
                shown += more

        _, errors = top.communicate(timeout=LIMIT_S)
    finally:
        top.kill()
        top.wait()
        os.close(own)

    assert b"\x1b[?1049h" in shown
    assert b"\x1b[?1049l" in shown
    assert b"Traceback" not in errors
    assert top.returncode == 130
