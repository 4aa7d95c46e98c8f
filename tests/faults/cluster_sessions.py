"""Sessions with several kernels and known outcomes, and what their kernels must look like. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from moorage.common.model.cluster import MAIN
from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.common.views.resources import HistoryEntry, KernelView, SessionView

# The exit code of a failing sub kernel.
SUB_CODE = 7
SubEnd = Literal["never", "before-main1", "failure", "tolerated-failure"]


@dataclass(frozen=True)
class ClusterScript:
    """``sub_end``: how sub1 ends while main1 runs; the other sub kernels end with main1. A failure
    ends the session, and main1 with it, unless it is tolerated."""

    size: int
    mode: Literal["single-node", "multi-node"]
    sub_end: SubEnd

    def session_options(self, record_start: str, record_end: str, sub_s: float) -> dict[str, Any]:
        """Options of the session's specification. ``sub_s``: how long sub1 runs."""
        code = 0 if self.sub_end == "before-main1" else SUB_CODE
        own_end = f"sleep {sub_s:.2f}; {record_end} exit {code}"
        program = f"{record_start} exec sleep 600"
        if self.sub_end != "never":
            program = (
                f'{record_start} if test "$MOORAGE_CLUSTER_HOST" = sub1; then {own_end}; fi; exec '
                "sleep 600"
            )

        return {
            "cluster": {
                "size": self.size,
                "mode": self.mode,
                "on_kernel_loss": "degrade" if self.sub_end == "tolerated-failure" else "end",
                "sub": {"command": ["/bin/sh", "-c", program]},
            }
        }


def draw_cluster(rng: random.Random, agents: int) -> ClusterScript:
    """``agents``: how many are available for a multi-node cluster."""
    mode = rng.choice(("single-node", "multi-node"))
    size = rng.randint(2, min(3, agents) if mode == "multi-node" else 3)
    sub_end = rng.choice(("never", "before-main1", "failure", "tolerated-failure"))
    return ClusterScript(size, mode, sub_end)


def latest_kernels(session: SessionView) -> list[KernelView]:
    """The kernels of the session's last attempt, main1 first."""
    attempt = max(kernel.attempt for kernel in session.kernels)
    latest = [kernel for kernel in session.kernels if kernel.attempt == attempt]
    return sorted(latest, key=lambda kernel: kernel.hostname)


def main_kernel(session: SessionView) -> KernelView:
    return next(kernel for kernel in latest_kernels(session) if kernel.hostname == MAIN)


def failed_by_sub(
    script: ClusterScript, session: SessionView, history: Sequence[HistoryEntry]
) -> bool:
    """Whether the session ended because a sub kernel failed. A tolerated failure ends it only while
    it starts."""
    if script.sub_end not in ("failure", "tolerated-failure"):
        return False

    placed = [number for number, entry in enumerate(history) if entry.to_status is Status.SCHEDULED]
    since = history[placed[-1] :] if placed else history
    if script.sub_end == "tolerated-failure" and any(e.to_status is Status.RUNNING for e in since):
        return False

    failed = [k for k in latest_kernels(session) if k.hostname != MAIN and k.exit_code == SUB_CODE]
    return bool(failed) and (session.result, session.reason) == (Result.FAILED, Reason.EXIT_NONZERO)


def wrong_kernels(script: ClusterScript, session: SessionView) -> str:
    """What is wrong with the kernels of a cluster that has ended, or "" if nothing is."""
    attempts: defaultdict[int, list[KernelView]] = defaultdict(list)
    for kernel in session.kernels:
        attempts[kernel.attempt].append(kernel)

    names = [MAIN, *(f"sub{number}" for number in range(1, script.size))]
    for attempt, kernels in attempts.items():
        hostnames = sorted(kernel.hostname for kernel in kernels)
        if hostnames != names:
            return f"attempt {attempt} has the kernels {hostnames}"
        if alive := [kernel.hostname for kernel in kernels if kernel.status not in TERMINAL]:
            return f"attempt {attempt} has ended without {alive}"

        agents = {kernel.agent_id for kernel in kernels}
        if agents == {None}:
            continue

        wanted = script.size if script.mode == "multi-node" else 1
        if None in agents or len(agents) != wanted:
            return (
                f"attempt {attempt} is {script.mode} and was placed on {sorted(map(str, agents))}"
            )

    return ""
