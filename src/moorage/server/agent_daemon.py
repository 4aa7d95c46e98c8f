"""Agent daemon: the process that ``moorage agent`` replaces itself with, without the command line.

An agent stays in memory on every node for months, and the command line, its table renderer and
pydantic would take half of its memory. So the command reads and validates the settings, passes them
on in memory, and executes this module, which imports none of them.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings, CommonSettings
    from moorage.common.config.telemetry_settings import TelemetrySettings
    from moorage.common.telemetry.tracer import Tracer
    from moorage.server.bootstrap import LocalAgents
    from moorage.server.etcd import EtcdUse

# Libraries' optional imports that we hide to save memory. structlog imports rich, for tracebacks
# that we do not print (8 MB), and greenlet, for contexts that we do not use (1 MB). requests
# imports a detector for the encoding of web pages (2 MB), which we do not need, because the Docker
# Engine declares the encoding of its responses.
HIDDEN_IMPORTS = ("rich", "greenlet", "charset_normalizer", "chardet")


def exec_agent(
    agents: LocalAgents,
    common: CommonSettings,
    telemetry: TelemetrySettings,
    home: Path,
    *,
    token: str,
    etcd: EtcdUse,
) -> NoReturn:
    """Replace this process with the agent daemon.

    ``agents``: with the registration applied. ``home``: the resolved state directory. Raises
    ``ConfigError`` if tracing is on and its packages are not installed.
    """
    dumped = [agent.model_dump() for agent in agents.settings]
    traces = telemetry.model_dump() | {
        "target": telemetry.target,
        "header_fields": telemetry.header_fields,
    }
    values = dumped, agents.of_sites, common.model_dump(), traces, home, token, etcd

    # A memory file is used because the values contain secrets. A pipe could not hold them all
    # before exec.
    fd = os.memfd_create("moorage-agent", 0)
    with open(fd, "wb", closefd=False) as file:
        pickle.dump(values, file)

    os.lseek(fd, 0, os.SEEK_SET)
    sys.stdout.flush()
    sys.stderr.flush()

    # The agent's id is only for people who read process lists. The agent's children only exec, but
    # gRPC's preparations for a fork would print a line for each of them.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    os.execv(
        sys.executable,
        [sys.executable, "-m", "moorage.server.agent_daemon", str(fd), agents.names or "agent"],
    )


def hide_optional_imports() -> None:
    """Make imports of ``HIDDEN_IMPORTS`` fail as if the packages were not installed."""
    for name in HIDDEN_IMPORTS:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


@asynccontextmanager
async def _with_tracer(
    component: AbstractAsyncContextManager[Any], tracer: Tracer | None
) -> AsyncIterator[Any]:
    """Run ``component`` with a tracer. Its traces are sent after it has stopped."""
    async with tracer or nullcontext(), component as entered:
        yield entered


def main() -> int:
    """Run the agent until a signal arrives. Returns the exit code."""
    hide_optional_imports()
    warnings.filterwarnings("ignore", "Unable to find acceptable character detection")
    from moorage.common.aio.clock import SystemClock
    from moorage.common.config import logging
    from moorage.common.model.errors import ConfigError, MoorageError
    from moorage.server.process import needs_extra, run, serve
    from moorage.server.tracing import tracer_for

    with open(int(sys.argv[1]), "rb") as file:
        agents, of_sites, common_values, traces, home, token, etcd = pickle.load(file)

    # The settings were validated before exec, so the agent needs only attribute access, without
    # pydantic.
    settings = [cast("AgentSettings", SimpleNamespace(**values)) for values in agents]
    common = cast("CommonSettings", SimpleNamespace(**common_values))
    logging.setup(common.log_format, common.log_level, "agent")

    try:
        with needs_extra("agent"):
            from moorage.agent import Agent, Sites
            from moorage.server.etcd import agent_member, with_etcd

        clock = SystemClock()
        telemetry = cast("TelemetrySettings", SimpleNamespace(**traces))
        tracer = tracer_for(telemetry, "agent", clock)
        parts: dict[str, Any] = {
            "clock": clock,
            "link_token": token,
            "home": home,
            "tracer": tracer,
        }
        component: Any = (
            Sites(settings, common, **parts) if of_sites else Agent(settings[0], common, **parts)
        )

        def running(entered: Any) -> list[Agent]:
            return list(entered.running.values()) if of_sites else [entered]

        component = with_etcd(
            component,
            etcd,
            clock=parts["clock"],
            members=lambda entered: map(agent_member, entered.id.split(", "), settings),
            dialers=lambda entered: [agent.dialer for agent in running(entered)],
        )
        managers = ", ".join(dict.fromkeys(setting.manager for setting in settings))
        component = _with_tracer(component, tracer)
        return run(
            serve(component, lambda agent: print(f"agent {agent.id} → {managers}", flush=True))
        )
    except MoorageError as error:
        step = f"; {error.next_step}" if error.next_step else ""
        print("moorage:", *(error.message + step).split(), file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
