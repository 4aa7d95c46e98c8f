"""A pass's caches, checked against a pass in which no two sessions have anything in common."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import NOW, PLANS, any_snapshot, head_with_backfill, policies, small_quota

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling import Plan, Policy, Snapshot, plan


def plan_each_alone(snapshot: Snapshot, policy: Policy) -> Plan:
    """Each session avoids a different agent that does not exist, so none is unconstrained or on the
    fast path, and no two share a refusal or a hold."""
    pending = (
        replace(item, avoid=item.avoid | {AgentId(f"nowhere-{item.session_id}")})
        for item in snapshot.pending
    )
    return plan(replace(snapshot, pending=tuple(pending)), policy, NOW)


@PLANS
@given(st.one_of(any_snapshot(), head_with_backfill(), small_quota()), policies())
def test_shared_refusals_change_no_decision(snapshot: Snapshot, policy: Policy) -> None:
    """In a shared refusal, only the numbers may be those of the session that was refused first."""
    shared = plan(snapshot, policy, NOW)
    alone = plan_each_alone(snapshot, policy)
    assert shared.places == alone.places
    assert shared.reservations == alone.reservations
    assert (shared.victims, shared.bypasses, shared.cursors) == (
        alone.victims,
        alone.bypasses,
        alone.cursors,
    )
    assert [hold._replace(refusals=()) for hold in shared.holds] == [
        hold._replace(refusals=()) for hold in alone.holds
    ]
