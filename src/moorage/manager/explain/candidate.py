"""Candidate sessions: specifications as the planner sees them, to answer questions about sessions
that do not exist."""

from __future__ import annotations

from math import ceil

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.runtimes import required_runtime
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.keys import NOBODY, Owner
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.store.sessions import spec_kernels

# Sorts after every real id, so a candidate comes last among sessions of the same priority and
# creation time.
CANDIDATE_ID = SessionId("ffffffff-ffff-ffff-ffff-ffffffffffff")


def candidate(spec: SessionSpec, owner: Owner = NOBODY, now: int = 0) -> Pending:
    """``spec`` as a pending session created at ``now`` (Unix microseconds)."""
    limits = [
        limit
        for limit in (spec.timeout_s, spec.max_lifetime_s, spec.walltime_s)
        if limit is not None
    ]
    return Pending(
        session_id=CANDIDATE_ID,
        kernel_id=KernelId(CANDIDATE_ID),
        revision=1,
        priority=spec.priority,
        created=now,
        retries=0,
        runtime=required_runtime(spec.runtime, owner.isolated),
        engine=spec.engine,
        slots=spec_kernels.main_slots(spec),
        sub_kernels=spec_kernels.sub_requests(spec),
        mode=spec.cluster.mode if spec.cluster else "single-node",
        user=owner.user,
        project=owner.project,
        session_type=spec.type,
        arch=spec.arch or "",
        labels=spec.labels,
        designated=frozenset(AgentId(agent) for agent in spec.agents),
        node_seconds=ceil(spec.walltime_s or 0) if spec.job is not None else 0,
        qos=spec.qos or "",
        time_limit=round((min(limits) + spec.stop_s) * 1_000_000) if limits else None,
    )
