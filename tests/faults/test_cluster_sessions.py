"""Judging sessions with several kernels: each way in which one can be wrong is found."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Result, Status
from moorage.common.views.resources import HistoryEntry, KernelView, SessionView

from .cluster_sessions import ClusterScript, draw_cluster, wrong_kernels
from .invariants import claimed_fault, wrong_result
from .load import Request

START = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = ClusterScript(2, "multi-node", "failure")
TOLERATES = replace(ENDS, sub_end="tolerated-failure")
TOGETHER = replace(ENDS, sub_end="never")


def kernel(hostname: str, agent: str | None, code: int | None, **fields: Any) -> KernelView:
    given: dict[str, Any] = {
        "attempt": 1,
        "status": Status.TERMINATED,
        "status_since": START,
    } | fields
    role = "main" if hostname == "main1" else "sub"
    return KernelView(
        id=f"{hostname}-{given['attempt']}",
        role=role,
        hostname=hostname,
        agent_id=agent,
        exit_code=code,
        **given,
    )


def session(
    *kernels: KernelView,
    reason: Reason = Reason.EXIT_ZERO,
    result: Result = Result.SUCCESS,
    status: Status = Status.TERMINATED,
    requeues: int = 0,
) -> SessionView:
    given: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "result": result,
        "requeues": requeues,
    }
    given |= {
        "name": "c",
        "detail": "",
        "kernels": list(kernels),
        "adopted_from": None,
        "endpoint": None,
    }
    return SessionView.model_construct(**given)


def history(*statuses: Status) -> list[HistoryEntry]:
    entries = []
    for number, (one, two) in enumerate(zip((Status.PENDING, *statuses), statuses, strict=False)):
        at = START + timedelta(seconds=number)
        fields: dict[str, Any] = {
            "revision": number + 1,
            "from_status": one,
            "to_status": two,
            "at": at,
        }
        entries.append(HistoryEntry.model_construct(**fields))

    return entries


STARTED = history(Status.SCHEDULED, Status.CREATING, Status.TERMINATING, Status.TERMINATED)
RAN = history(Status.SCHEDULED, Status.CREATING, Status.RUNNING, Status.TERMINATED)
MAIN = kernel("main1", "agent-1", 0)
SUB = kernel("sub1", "agent-2", None)
STOPPED = kernel("main1", "agent-1", -15)
FAILED = kernel("sub1", "agent-2", 7)
BY_SUB: dict[str, Any] = {"reason": Reason.EXIT_NONZERO, "result": Result.FAILED}


@pytest.mark.parametrize(
    ("script", "view", "entries", "is_right"),
    [
        (TOGETHER, session(MAIN, SUB), RAN, True),
        (TOGETHER, session(kernel("main1", "agent-1", 3), SUB), RAN, False),
        (
            TOGETHER,
            session(kernel("main1", "agent-1", 3), kernel("sub1", "agent-2", 0)),
            RAN,
            False,
        ),
        (TOGETHER, session(STOPPED, FAILED, **BY_SUB), RAN, False),
        (ENDS, session(STOPPED, FAILED, **BY_SUB), RAN, True),
        (ENDS, session(STOPPED, FAILED, **BY_SUB), STARTED, True),
        (ENDS, session(STOPPED, FAILED, requeues=1, **BY_SUB), RAN, False),
        (ENDS, session(STOPPED, SUB, **BY_SUB), RAN, False),
        (ENDS, session(MAIN, FAILED), RAN, False),
        (TOLERATES, session(MAIN, FAILED), RAN, True),
        (TOLERATES, session(STOPPED, FAILED, **BY_SUB), RAN, False),
        (TOLERATES, session(STOPPED, FAILED, **BY_SUB), STARTED, True),
    ],
)
def test_result(
    script: ClusterScript, view: SessionView, entries: list[HistoryEntry], is_right: bool
) -> None:
    ran = frozenset(each.id for each in view.kernels)
    found = wrong_result(
        Request("c", "cluster", code=0, retries=0, cluster=script), view, entries, ran
    )
    assert (found == "") is is_right, found


def test_an_exit_code_of_a_sub_kernel_that_was_never_started_is_found() -> None:
    found = wrong_result(
        Request("c", "cluster", code=0, retries=0, cluster=ENDS),
        session(MAIN, FAILED),
        RAN,
        frozenset({MAIN.id}),
    )
    assert "never started" in found


@pytest.mark.parametrize(
    ("script", "kernels", "problem"),
    [
        (TOGETHER, (MAIN, SUB), ""),
        (TOGETHER, (kernel("main1", None, None), kernel("sub1", None, None)), ""),
        (TOGETHER, (MAIN,), "has the kernels ['main1']"),
        (TOGETHER, (MAIN, SUB, SUB), "has the kernels ['main1', 'sub1', 'sub1']"),
        (
            TOGETHER,
            (MAIN, kernel("sub1", "agent-2", None, status=Status.RUNNING)),
            "without ['sub1']",
        ),
        (
            TOGETHER,
            (MAIN, kernel("sub1", "agent-1", None)),
            "multi-node and was placed on ['agent-1']",
        ),
        (TOGETHER, (MAIN, kernel("sub1", None, None)), "placed on ['None', 'agent-1']"),
        (replace(TOGETHER, mode="single-node"), (MAIN, SUB), "single-node and was placed on"),
        (
            TOGETHER,
            (kernel("main1", "agent-1", 0, attempt=2), MAIN, SUB),
            "attempt 2 has the kernels",
        ),
    ],
)
def test_kernels(script: ClusterScript, kernels: tuple[KernelView, ...], problem: str) -> None:
    found = wrong_kernels(script, session(*kernels))
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_kernel_that_returned_after_the_end_of_its_session_was_on_the_lost_agent() -> None:
    """It has its own outcome, and only the kernel that was stopped has the reason for the end."""
    late = RAN[-1].at + timedelta(seconds=7)
    returned = kernel("main1", "agent-1", 1, reason=Reason.EXIT_NONZERO, status_since=late)
    stopped = kernel("sub1", "agent-2", -15, reason=Reason.AGENT_LOST)
    view = session(
        returned, stopped, reason=Reason.AGENT_LOST, status=Status.ERROR, result=Result.FAILED
    )
    claimed = claimed_fault(view, RAN)
    assert claimed is not None
    assert claimed.agents == {"agent-1", "agent-2"}


def test_a_fault_is_blamed_on_the_agents_of_the_kernels_that_say_so() -> None:
    gone = kernel("sub1", "agent-2", None, status=Status.ERROR, reason=Reason.KERNEL_GONE)
    blames: dict[str, Any] = {
        "reason": Reason.KERNEL_GONE,
        "status": Status.ERROR,
        "result": Result.FAILED,
    }
    claimed = claimed_fault(session(MAIN, gone, **blames), RAN)
    assert claimed is not None
    assert claimed.agents == {"agent-2"}
    unclear = claimed_fault(session(MAIN, SUB, **blames), RAN)
    assert unclear is not None
    assert unclear.agents == {"agent-1", "agent-2"}
    nowhere = kernel("main1", None, None, attempt=2)
    not_placed = claimed_fault(session(MAIN, SUB, nowhere, **blames), RAN)
    assert not_placed is not None
    assert not_placed.agents == frozenset()


def test_drawn_clusters_are_specifications_of_every_kind() -> None:
    rng = random.Random(1)
    kinds = set()
    for _ in range(200):
        script = draw_cluster(rng, agents=2)
        options = script.session_options("true;", "true;", 1.0)
        spec = SessionSpec.model_validate({"type": "batch", "command": ["true"], **options})
        assert spec.cluster is not None
        assert script.mode == "single-node" or script.size == 2, "there are two agents"
        kinds.add((spec.cluster.mode, spec.cluster.on_kernel_loss, script.sub_end))

    assert len(kinds) == 8
