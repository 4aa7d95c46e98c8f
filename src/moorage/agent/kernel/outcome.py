"""Outcome of a kernel: maps its exit status and the agent's own actions to a ``Reason``. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

# Signals by number. A program raises the first kind itself when it crashes. The second kind is sent
# from outside.
_CRASHES = {
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    11: "SIGSEGV",
    31: "SIGSYS",
}
_KILLS = {
    1: "SIGHUP",
    2: "SIGINT",
    9: "SIGKILL",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
}


@dataclass(frozen=True, slots=True)
class KernelOutcome:
    """The outcome of a kernel. ``state`` is EXITED or GONE. ``exit_code`` is negative for a signal,
    and None if unknown."""

    state: ObservedState
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TerminationCause:
    """Why the agent terminates a kernel. Without a reason, the order was withdrawn, and the manager
    has the reason."""

    reason: Reason = Reason.NONE
    detail: str = ""


WITHDRAWN = TerminationCause()


def determine_outcome(
    state: ObservedState,
    exit_code: int | None,
    *,
    oom: bool,
    refused: bool,
    detail: str,
    cause: TerminationCause | None,
    lease_expired: bool = False,
    walltime_over: bool = False,
) -> KernelOutcome:
    """The outcome of a kernel that has ended, from its last status in the runtime. ``refused``: its
    program could not be executed. ``cause`` is set if the agent terminated the kernel, and
    overrides the exit status."""
    if cause is not None:
        return KernelOutcome(ObservedState.EXITED, exit_code, cause.reason, cause.detail)
    if lease_expired:
        detail = "its node had no contact with a manager during its lease"
        return KernelOutcome(ObservedState.EXITED, exit_code, Reason.LEASE_EXPIRED, detail)
    if walltime_over:
        return KernelOutcome(ObservedState.EXITED, exit_code, Reason.WALLTIME, detail)
    if refused:
        return KernelOutcome(ObservedState.EXITED, None, Reason.CREATE_FAILED, detail)
    if state is ObservedState.GONE:
        return KernelOutcome(state, None, Reason.KERNEL_GONE, detail)
    if exit_code is None:
        return KernelOutcome(state, None, Reason.KILLED, detail)
    if exit_code == 0:
        return KernelOutcome(state, 0, Reason.EXIT_ZERO, detail)

    if exit_code > 0 and oom:
        # For example a data loader, or the program behind `sh -c`. Its parent then fails in its own
        # way.
        detail = f"the Linux OOM killer killed one of its processes; exit code {exit_code}"
        return KernelOutcome(state, exit_code, Reason.OOM, detail)

    if exit_code > 0:
        return KernelOutcome(
            state, exit_code, Reason.EXIT_NONZERO, detail or f"exit code {exit_code}"
        )

    number = -exit_code
    if oom:
        return KernelOutcome(state, exit_code, Reason.OOM, "the Linux OOM killer killed it")
    if name := _CRASHES.get(number):
        return KernelOutcome(state, exit_code, Reason.EXIT_NONZERO, f"it crashed with {name}")

    killed = f"killed by {_KILLS.get(number, f'signal {number}')}"
    return KernelOutcome(
        state, exit_code, Reason.KILLED, f"{killed}: {detail}" if detail else killed
    )
