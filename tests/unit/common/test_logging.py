"""Log lines of a process: if configured, each line is a JSON object, no matter which library logs
it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from moorage.common.config.logging import Component, component_of

PROGRAM = """
import logging, warnings
import structlog
from moorage.common.config import logging as setup
setup.setup("{format}", "info", "up")
log = structlog.get_logger("moorage.agent.kernel.task")
log.info("kernel started", kernel="k-1")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("kernel failed")
    logging.getLogger("asyncio").exception("unhandled %s", "error")
logging.getLogger("aiohttp").info("below the level of libraries")
warnings.warn("of a library")
"""


def lines(fmt: str) -> list[str]:
    command = [sys.executable, "-W", "default", "-c", PROGRAM.format(format=fmt)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_every_line_is_json() -> None:
    started, failed, unhandled, warning = (json.loads(line) for line in lines("json"))
    assert started.pop("ts").endswith("Z")
    assert started == {
        "event": "kernel started", "kernel": "k-1", "level": "info", "logger": "moorage.agent.kernel.task",
        "component": "agent",
    }  # fmt: skip
    assert "ZeroDivisionError" in failed["exception"]
    assert (unhandled["logger"], unhandled["event"]) == ("asyncio", "unhandled error")
    assert (unhandled["component"], warning["component"]) == ("up", "up")
    assert "ZeroDivisionError" in unhandled["exception"]
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning")


@pytest.mark.parametrize(
    ("name", "process", "component"),
    [
        ("moorage.agent", "up", "agent"),
        ("moorage.proxy.ssh", "up", "proxy"),
        ("moorage.manager", "up", "manager"),
        ("moorage.link", "agent", "agent"),
        ("moorage.agents", "manager", "manager"),
        ("moorage", "cli", "cli"),
        ("agent.of.a.library", "manager", "manager"),
        ("grpc._cython.cygrpc", "proxy", "proxy"),
    ],
)
def test_a_line_has_the_component_of_its_logger_or_its_process(
    name: str, process: Component, component: str
) -> None:
    assert component_of(name, process) == component


def test_text_has_records_of_libraries() -> None:
    text = "\n".join(lines("text"))
    assert "kernel started" in text
    assert "unhandled error" in text
    assert text.count("ZeroDivisionError: division by zero") == 2
    assert "below the level" not in text


@pytest.mark.parametrize(
    ("env", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colors_on_a_terminal(env: dict[str, str], colored: bool) -> None:
    ours, theirs = os.openpty()
    program = (
        "import structlog; from moorage.common.config.logging import setup\n"
        "setup(); structlog.get_logger().info('x')"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    given = plain | {"TERM": "xterm"} | env
    subprocess.run([sys.executable, "-c", program], stderr=theirs, env=given, check=True)
    os.close(theirs)
    line = os.read(ours, 10_000)
    os.close(ours)
    assert b"x" in line
    assert (b"\x1b[" in line) is colored
