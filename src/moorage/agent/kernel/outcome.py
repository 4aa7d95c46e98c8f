"""How a kernel ended, in the words of ``common.reasons``. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

# Signals that a program brings upon itself, by number: a crash, not a kill from outside.
_CRASHES = {3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV",
            31: "SIGSYS"}  # fmt: skip
_KILLS = {1: "SIGHUP", 2: "SIGINT", 9: "SIGKILL", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """``state`` is EXITED or GONE. ``exit_code`` is negative for a signal, None if unknown."""

    state: ObservedState
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Doom:
    """Why the agent itself ends a kernel. Without a reason: its order was withdrawn, and whoever did knows
    why."""

    reason: Reason = Reason.NONE
    detail: str = ""


def judge(
    state: ObservedState, exit_code: int | None, *, oom: bool, refused: bool, detail: str, doom: Doom | None
) -> Outcome:
    """From what the runtime saw and what the agent did. ``refused``: its program could not be run at all."""
    if doom is not None:
        return Outcome(ObservedState.EXITED, exit_code, doom.reason, doom.detail)
    if refused:
        return Outcome(ObservedState.EXITED, None, Reason.CREATE_FAILED, detail)
    if state is ObservedState.GONE:
        return Outcome(state, None, Reason.KERNEL_GONE, detail)
    if exit_code is None:
        return Outcome(state, None, Reason.KILLED, detail)
    if exit_code == 0:
        return Outcome(state, 0, Reason.EXIT_ZERO, detail)
    if exit_code > 0:
        return Outcome(state, exit_code, Reason.EXIT_NONZERO, detail or f"exit code {exit_code}")
    number = -exit_code
    if oom:
        return Outcome(state, exit_code, Reason.OOM, "the node's kernel killed it for its memory")
    if name := _CRASHES.get(number):
        return Outcome(state, exit_code, Reason.EXIT_NONZERO, f"it crashed with {name}")
    return Outcome(state, exit_code, Reason.KILLED, f"killed by {_KILLS.get(number, f'signal {number}')}")
