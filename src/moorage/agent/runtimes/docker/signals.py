"""Signals to a container's main program, which runs below the engine's init."""

from __future__ import annotations

from signal import Signals
from typing import Any

from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.agent.runtimes.signals import SignalRefused, without_handler

_PS = "-eo pid,ppid,caught,blocked"


async def deliver(engine: DockerEngine, container: str, name: str) -> None:
    """Send the signal, which the init forwards. Returns once the engine has sent it. Raises
    ``SignalRefused``."""

    def send(api: Any) -> None:
        state = api.inspect_container(container)["State"]
        if not state.get("Running"):
            raise SignalRefused("the container is not running")
        if not _handles(api, container, state["Pid"], Signals[f"SIG{name}"]):
            raise without_handler(name)
        api.kill(container, f"SIG{name}")

    try:
        await engine.call(send)
    except (NoSuchObject, RequestRefused) as error:
        raise SignalRefused(f"the engine cannot signal it: {error}") from None


def _handles(api: Any, container: str, init: int, number: int) -> bool:
    """Whether the main program catches a signal or waits for it. True if the engine cannot tell."""
    from docker.errors import APIError

    try:
        rows = api.top(container, ps_args=_PS)["Processes"]
    except APIError:
        return True  # the ps of the engine's node lacks these columns
    return handles(rows, init, number)


def handles(rows: list[list[str]], init: int, number: int) -> bool:
    """Whether the program handles a signal. ``rows``: PID, PPID, and the caught and blocked signals
    in hexadecimal, of each process."""
    children = sorted((int(pid), sets) for pid, ppid, *sets in rows if int(ppid) == init)
    if not children:
        return True
    return any(int(child.lstrip("<"), 16) >> (number - 1) & 1 for child in children[0][1])
