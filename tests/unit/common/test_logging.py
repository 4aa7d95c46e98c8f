"""Log lines of a process: each a JSON object when asked for, whoever logs."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging, warnings
import structlog
from moorage.common.config import logging as setup
setup.setup("{format}", "info")
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
    }  # fmt: skip
    assert "ZeroDivisionError" in failed["exception"]
    assert (unhandled["logger"], unhandled["event"]) == ("asyncio", "unhandled error")
    assert "ZeroDivisionError" in unhandled["exception"]
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning")


def test_text_has_records_of_libraries() -> None:
    text = "\n".join(lines("text"))
    assert "kernel started" in text
    assert "unhandled error" in text
    assert text.count("ZeroDivisionError: division by zero") == 2
    assert "below the level" not in text
