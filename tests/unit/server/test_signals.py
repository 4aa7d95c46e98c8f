"""Signals that stop a daemon: it finishes the work that it has started."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.common.config.settings import ProxySettings

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "moorage-proxy.service"
DAEMON = """
import asyncio, signal
from contextlib import asynccontextmanager
from moorage.server.process import run, serve

@asynccontextmanager
async def component():
    yield
    await asyncio.sleep(0.2)
    print("finished", flush=True)

{setup}
raise SystemExit(run(serve(component(), lambda _: print("ready", flush=True))))
"""


def start(setup: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DAEMON.format(setup=setup)]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "ready\n"
    return daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_daemon_finishes_what_it_has_begun(number: signal.Signals) -> None:
    daemon = start("pass")
    daemon.send_signal(number)
    output, _ = daemon.communicate(timeout=30)
    assert (output, daemon.returncode) == ("finished\n", 0)


def test_hangup_that_is_ignored_remains_so() -> None:
    daemon = start("signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    ignored = re.search(r"^SigIgn:\s+(\w+)", status, re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) & 1, "SIGHUP"
    daemon.send_signal(signal.SIGTERM)
    assert daemon.communicate(timeout=30)[0] == "finished\n"


def test_unit_of_the_proxy_waits_for_its_drain() -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) > ProxySettings().drain_timeout_s
