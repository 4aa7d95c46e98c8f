"""Agent daemon: the process that ``moorage agent`` becomes, without the command line.

What is imported here is paid for on every node, for months: the command line with its tables, and what
validates settings, weigh half of the agent. So they are read and validated before, and handed over in memory.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings, CommonSettings, Settings

# What libraries take in where they find it, and do without where they do not. structlog: for tracebacks that
# we do not print (8 MB), and for contexts that we do not have (1 MB). requests: to guess in what encoding a
# web page is (2 MB), where the Docker Engine says what it speaks.
_UNUSED = ("rich", "greenlet", "charset_normalizer", "chardet")


def become(settings: Settings, home: Path, token: str) -> NoReturn:
    """Replace this process. ``settings`` as joined; ``home`` as it is."""
    values = settings.agent.model_dump(), settings.common.model_dump(), home, token
    file = os.memfd_create("moorage-agent", 0)  # in memory alone: there are secrets among them
    with open(file, "wb", closefd=False) as written:
        pickle.dump(values, written)
    os.lseek(file, 0, os.SEEK_SET)
    sys.stdout.flush()
    sys.stderr.flush()
    # The name is for people who look at processes.
    os.execv(
        sys.executable,
        [sys.executable, "-m", "moorage.server.agent_daemon", str(file), settings.agent.id or "agent"],
    )


def main() -> int:
    """The agent, until a signal; its exit code."""
    for name in _UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    warnings.filterwarnings("ignore", "Unable to find acceptable character detection")
    from moorage.common.aio.clock import SystemClock
    from moorage.common.config import logging
    from moorage.common.model.errors import ConfigError, MoorageError
    from moorage.server.process import need, run, serve

    with open(int(sys.argv[1]), "rb") as file:
        agent, common, home, token = pickle.load(file)
    settings = cast("AgentSettings", SimpleNamespace(**agent))
    shared = cast("CommonSettings", SimpleNamespace(**common))
    logging.setup(shared.log_format, shared.log_level)
    try:
        try:
            from moorage.agent import Agent
        except ImportError as error:
            raise need("agent", error) from error
        part = Agent(settings, shared, clock=SystemClock(), link_token=token, home=home)
        return run(serve(part, lambda agent: print(f"agent {agent.id} → {settings.manager}", flush=True)))
    except MoorageError as error:
        step = f"; {error.next_step}" if error.next_step else ""
        print("moorage:", *(error.message + step).split(), file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
