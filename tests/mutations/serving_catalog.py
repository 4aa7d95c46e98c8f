"""Faults in the decisions about endpoints. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

REPLICAS = ("tests/unit/manager/test_rollouts.py", "tests/unit/manager/test_replicas.py")
AUTOSCALE = ("tests/unit/manager/test_autoscale.py",)
HEALTH = ("tests/unit/agent/test_health.py",)
NEW_TERMS = ("tests/store/test_new_terms.py",)
UNDO = ("tests/store/test_rollouts.py",)

MUTATIONS = (
    Mutation(
        "an undo returns to a revision that was never complete",
        "manager/store/schema/functions/follow_target.sql",
        "CASE WHEN completed_at IS NULL THEN served_before ELSE revision END AS served",
        "revision AS served",
        UNDO,
    ),
    Mutation(
        "an undo returns to a revision that was undone",
        "manager/store/schema/functions/follow_target.sql",
        "WHEN r.revision IN (SELECT p.revision FROM preceding p WHERE p.revision IS NOT NULL)",
        "WHEN false",
        UNDO,
    ),
    Mutation(
        "a rollout counts as failed after it was undone",
        "manager/store/endpoints/sql/endpoints_to_reconcile.sql",
        "AND o.failed_at >= r.target_since",
        "AND o.failed_at IS NOT NULL",
        UNDO,
    ),
    Mutation(
        "an old replica goes before a new one is ready",
        "manager/serving/replicas.py",
        "if ready > endpoint.wanted - spare or (at is not None and now >= at):",
        "if True:",
        REPLICAS,
    ),
    Mutation(
        "a rollout exceeds max_surge",
        "manager/serving/replicas.py",
        "start = max(0, min(missing, room))",
        "start = missing",
        REPLICAS,
    ),
    Mutation(
        "a draining replica stops while a proxy may still send requests there",
        "manager/serving/replicas.py",
        "is_idle = not r.in_flight and r.is_confirmed",
        "is_idle = not r.in_flight",
        REPLICAS,
    ),
    Mutation(
        "a revision that has worked is rolled back",
        "manager/serving/replicas.py",
        (
            "    if (\n"
            "        not endpoint.proven\n"
            "        and endpoint.fallback\n"
            "        and len(failed) >= endpoint.spec.rollout.max_failures\n"
            "    ):"
        ),
        "    if endpoint.fallback and len(failed) >= endpoint.spec.rollout.max_failures:",
        REPLICAS,
    ),
    Mutation(
        "a busy replica is scaled down before an idle one",
        "manager/serving/replicas.py",
        (
            "        key=lambda r: (\n"
            "            _LEAVE_ORDER.index(leaving[r]),\n"
            "            r.ends_at or _FAR,\n"
            "            r.in_flight or 0,\n"
            "            r.created_at,\n"
            "        ),"
        ),
        "        key=lambda r: (_LEAVE_ORDER.index(leaving[r]), r.ends_at or _FAR, r.created_at),",
        REPLICAS,
    ),
    Mutation(
        "an endpoint sleeps while no proxy reports",
        "manager/serving/autoscale.py",
        "if policy.min > 0 or load.idle_s is None or",
        "if policy.min > 0 or",
        AUTOSCALE,
    ),
    Mutation(
        "autoscaling goes down at once",
        "manager/serving/autoscale.py",
        (
            "    may_at = max(scaling.scaled_at, recent[0].at) + timedelta(seconds=policy.down_delay_s)\n"
            "    if now < may_at:\n"
            "        return AutoscaleDecision(wanted, look_at=may_at)\n"
        ),
        "    may_at = max(scaling.scaled_at, recent[0].at) + timedelta(seconds=policy.down_delay_s)",
        AUTOSCALE,
    ),
    Mutation(
        "an engine that works through its queue is unhealthy",
        "agent/kernel/health.py",
        "works = outcome is None and progress > self._progress",
        "works = False",
        HEALTH,
    ),
    Mutation(
        "a request fails while its replicas are replaced",
        "proxy/core/flow.py",
        "if waits and self._may_wait(request) and self._router.can_hold(self.model):",
        "if False:",
        ("tests/unit/proxy/test_flow.py", "-k", "dead"),
    ),
    Mutation(
        "a request that kills replicas is sent to more of them",
        "proxy/core/flow_parts.py",
        "self.failures = tuple(failure for failure in self.failures if failure in DEATHS)",
        "self.failures = ()",
        ("tests/unit/proxy/test_flow.py", "-k", "losses"),
    ),
    Mutation(
        "the lowest priority goes before none in vLLM",
        "proxy/core/priority.py",
        "DEFAULT - priority",
        "-priority",
        ("tests/unit/proxy/test_flow.py", "-k", "priority"),
    ),
    Mutation(
        "a new leader does not know when healthy replicas end",
        "manager/loops/replica_controller.py",
        "everything=True",
        "everything=False",
        NEW_TERMS,
    ),
    Mutation(
        "timers of lost announcements are lost",
        "manager/loops/replica_controller.py",
        "self._planning.restart()",
        "pass",
        NEW_TERMS,
    ),
    Mutation(
        "budgets wait for a follower's interval when a term begins",
        "manager/loops/leader.py",
        "[Topic.SCHEDULE, Topic.ENDPOINTS, Topic.BUDGETS]",
        "[Topic.SCHEDULE, Topic.ENDPOINTS]",
        NEW_TERMS,
    ),
    Mutation(
        "a leader that leads again trusts what it wrote before",
        "manager/loops/scheduler.py",
        "self._store.scheduling.forget_holds()",
        "pass",
        NEW_TERMS,
    ),
    Mutation(
        "a warning that was decided before a failover is never told",
        "manager/workloads/idle.py",
        "if state.warned_s is None or (in_s > 0 and not told):",
        "if state.warned_s is None:",
        NEW_TERMS,
    ),
    Mutation(
        "the catalogue with agents of a group that the caller may not use",
        "manager/api/endpoints/catalog.py",
        "closed=await closed_groups(call)",
        "closed=frozenset()",
        ("tests/store/api/test_api_catalog.py", "-k", "may_not_use"),
    ),
)
