"""The agent in a process that holds nothing else: ``fairlead agent`` becomes ``python -m fairlead.agentd``.

What is imported here is paid for on every node, for months: the command line and its tables weigh a third of
the agent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

NO_FILE = "-"


def become(config: Path | None, given: Mapping[str, str]) -> NoReturn:
    """Replace this process. ``config``: a file of settings; ``given``: what comes before it, by
    ``section.key``."""
    settings = [f"{name}={value}" for name, value in given.items()]
    words = [sys.executable, "-m", "fairlead.agentd", NO_FILE if config is None else str(config), *settings]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, words)


def main() -> int:
    """The agent, until a signal; its exit code."""
    # structlog takes in rich, where it finds it, for tracebacks that we do not print: 8 MB.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from fairlead.common.config import load
    from fairlead.common.errors import ConfigError, FairleadError
    from fairlead.starting import as_joined, need, prepare, run, serve

    file, *settings = sys.argv[1:]
    given = dict(item.split("=", 1) for item in settings)
    try:
        start = prepare(load(None if file == NO_FILE else Path(file), os.environ, given))
        try:
            from fairlead.agent import Agent
        except ImportError as error:
            raise need("agent", error) from error
        joined = as_joined(start.loaded, start.home, "agent")
        part = Agent(joined.agent, joined.common, clock=start.clock, link_token=start.token, home=start.home)
        return run(serve(part, lambda agent: print(f"agent {agent.id} → {joined.agent.manager}", flush=True)))
    except FairleadError as error:
        step = f"; {error.next_step}" if error.next_step else ""
        print("fairlead:", *(error.message + step).split(), file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
