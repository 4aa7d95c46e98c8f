"""Catalog of mutations: known faults that the tests must find.

Text that the code no longer contains makes a mutation stale; rewrite it for the new code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``before`` occurs exactly once in ``file`` (below src/moorage) and is replaced by ``after``. ``tests``
    are the pytest arguments of the tests that must fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


PLANNER = ("tests/model",)
PREEMPTION = ("tests/model/test_preemption_rules.py",)
REPLAY = ("tests/unit/simulator/test_scheduler_recording.py",)
LIFECYCLE = ("tests/unit/manager",)
SUPERVISOR = ("tests/unit/common/test_supervisor.py", "--timeout", "30")
KERNEL_FAILURES = ("tests/unit/agent/test_kernel_failures.py",)

MUTATIONS = (
    Mutation(
        "a reservation admits whatever ends late",
        "manager/scheduling/backfill/reservation_guard.py",
        "ends_at <= self.starts_at",
        "ends_at <= self.starts_at + 5",
        PLANNER,
    ),
    Mutation(
        "a reservation forgets what it admitted",
        "manager/scheduling/backfill/reservation_guard.py",
        "self._expected()[0].deduct(allocations)",
        "pass",
        PLANNER,
    ),
    Mutation(
        "a held session takes what is short",
        "manager/scheduling/backfill/reservation_guard.py",
        "return all(after.free.get(slot, 0) >= needed[slot] for slot in taken)",
        "return True",
        PLANNER,
    ),
    Mutation(
        "quotas are not charged within a pass",
        "manager/scheduling/core/quotas.py",
        "remaining[index] -= amount",
        "remaining[index] -= 0",
        PLANNER,
    ),
    Mutation(
        "a quota admits one unit too much",
        "manager/scheduling/core/quotas.py",
        "if amount > remaining[index]:\n                    amounts",
        "if amount > remaining[index] + 1:\n                    amounts",
        PLANNER,
    ),
    Mutation(
        "an undone charge stays",
        "manager/scheduling/core/quotas.py",
        "remaining[index] += amount",
        "remaining[index] += 0",
        PLANNER,
    ),
    Mutation(
        "an overdue session may be overtaken",
        "manager/scheduling/core/order.py",
        "item.bypassed >= policy.max_bypasses",
        "item.bypassed > policy.max_bypasses",
        PLANNER,
    ),
    Mutation(
        "fair shares ignore placements of the pass",
        "manager/scheduling/core/order.py",
        "used[slot] = used.get(slot, 0) + amount\n\n    def __iter__",
        "used[slot] = used.get(slot, 0)\n\n    def __iter__",
        PLANNER,
    ),
    Mutation(
        "unhealthy devices become free",
        "manager/scheduling/placement/free_capacity.py",
        "if devices is not None and state.healthy:",
        "if devices is not None:",
        PLANNER,
    ),
    Mutation(
        "an allocated device stays free",
        "manager/scheduling/placement/free_capacity.py",
        "                    if allocate:\n                        devices.free[index] -= share",
        "                    if allocate:\n                        devices.free[index] -= 0",
        PLANNER,
    ),
    Mutation(
        "a copy of capacity shares its devices",
        "manager/scheduling/placement/free_capacity.py",
        "devices.free[:] = self._free_devices[name].free",
        "devices.free = self._free_devices[name].free",
        PLANNER,
    ),
    Mutation(
        "a cluster runs when one kernel runs",
        "manager/lifecycle/reconcile.py",
        "last, first = STATUS_ORDER[min(live)], STATUS_ORDER[max(live)]",
        "last, first = STATUS_ORDER[max(live)], STATUS_ORDER[max(live)]",
        LIFECYCLE,
    ),
    Mutation(
        "a program that ran is started again",
        "manager/lifecycle/reconcile.py",
        "if session.spec.type is SessionType.BATCH and reason in PROGRAM_FAILED:\n        return False",
        "if False:\n        return False",
        LIFECYCLE,
    ),
    Mutation(
        "retries have no limit",
        "manager/lifecycle/reconcile.py",
        "and session.requeues < session.spec.retries",
        "",
        LIFECYCLE,
    ),
    Mutation(
        "the backoff does not grow",
        "manager/lifecycle/reconcile.py",
        "spec.retry_backoff_s * 2.0**requeues",
        "spec.retry_backoff_s",
        LIFECYCLE,
    ),
    Mutation(
        "an agent obeys older orders",
        "agent/kernel/reconcile.py",
        "return orders.generation >= newest",
        "return True",
        ("tests/unit/agent/test_reconcile.py",),
    ),
    Mutation(
        "a kernel in the checkpoint is created again",
        "agent/kernel/reconcile.py",
        "new = [spec for kernel_id, spec in ordered.items() if kernel_id not in checkpoint]",
        "new = [spec for kernel_id, spec in ordered.items() if observed.get(kernel_id) not in ALIVE]",
        ("tests/unit/agent/test_reconcile.py",),
    ),
    Mutation(
        "unknown counts as gone",
        "agent/kernel/reconcile.py",
        "ENDED = frozenset({ObservedState.EXITED, ObservedState.GONE})",
        "ENDED = frozenset({ObservedState.EXITED, ObservedState.GONE, ObservedState.UNKNOWN})",
        ("tests/unit/agent/test_reconcile.py",),
    ),
    Mutation(
        "preemption stops more sessions than necessary",
        "manager/scheduling/planning/preemption.py",
        "range(least, most + 1)",
        "range(0)",
        PREEMPTION,
    ),
    Mutation(
        "the victims of a cluster are chosen one agent at a time",
        "manager/scheduling/planning/preemption.py",
        "range(1, len(known))",
        "range(0)",
        PREEMPTION,
    ),
    Mutation(
        "preemption keeps a session that is not needed among the victims",
        "manager/scheduling/planning/victims.py",
        "        if suffices(rest):\n            kept = rest",
        "        if suffices(rest):\n            kept = kept",
        PREEMPTION,
    ),
    Mutation(
        "the victim order ends at the agent",
        "manager/scheduling/planning/preemption.py",
        "victim_cost(victims) < best[0]",
        "len(victims) < best[0][0]",
        PREEMPTION,
    ),
    Mutation(
        "an agent without better victims is left out too early",
        "manager/scheduling/planning/preemption.py",
        "if best is not None and (least, [candidates[least - 1].position]) > best:",
        "if best is not None and least >= best[0]:",
        PREEMPTION,
    ),
    Mutation(
        "a session of high priority is stopped although lower ones suffice",
        "manager/scheduling/planning/preemption.py",
        "self._choose(parts, nodes, levels[low])",
        "self._choose(parts, nodes, levels[-1])",
        PREEMPTION,
    ),
    Mutation(
        "what ends before the grace would end does not count",
        "manager/scheduling/planning/vacancies.py",
        "running.ends_at <= self._deadline)",
        "running.ends_at <= self._now)",
        PREEMPTION,
    ),
    Mutation(
        "sessions that are being stopped do not count as free",
        "manager/scheduling/planning/vacancies.py",
        "return running.terminating or (",
        "return (",
        PREEMPTION,
    ),
    Mutation(
        "what a victim frees on another agent is lost",
        "manager/scheduling/planning/vacancies.py",
        "            elif running.session_id in stopped or running.session_id in self._victims:",
        "            elif running.session_id in stopped:",
        PREEMPTION,
    ),
    Mutation(
        "a session with a protected kernel is stopped",
        "manager/scheduling/planning/vacancies.py",
        "for session_id in kernels if session_id not in protected)",
        "for session_id in kernels)",
        PREEMPTION,
    ),
    Mutation(
        "hopeless requests use up the searches",
        "manager/scheduling/planning/preemption.py",
        "            self._hopeless.add(item)\n            return None\n        self._searches",
        "            self._searches += 1\n            return None\n        self._searches",
        PREEMPTION,
    ),
    Mutation(
        "waiting for what ends anyway uses up the searches",
        "manager/scheduling/planning/preemption.py",
        "            return self._result(item, parts, found, [])",
        "            self._searches += 1\n            return self._result(item, parts, found, [])",
        PREEMPTION,
    ),
    Mutation(
        "a reservation of what victims release begins too early",
        "manager/scheduling/planning/vacancies.py",
        "            capacity.release(allocations)\n            starts_at = at",
        "            capacity.release(allocations)",
        PREEMPTION,
    ),
    Mutation(
        "the simulation does not stop what is preempted",
        "simulator/scheduler/simulation.py",
        "            self._preempt(victim, now)",
        "            pass",
        REPLAY,
    ),
    Mutation(
        "what other resource groups use of a quota does not count in the simulation",
        "simulator/scheduler/simulation.py",
        "used = in_shares(quota.used_elsewhere)",
        "used = in_shares({})",
        REPLAY,
    ),
    Mutation(
        "a preempted session arrives again in a trace",
        "simulator/scheduler/recording.py",
        "if item.session_id in self.requeued:",
        "if False:",
        REPLAY,
    ),
    Mutation(
        "an ill device is allocated at commit",
        "manager/store/sql/session_place.sql",
        "CASE WHEN c.healthy THEN c.used + l.amount ELSE c.capacity + 1 END",
        "c.used + l.amount",
        ("tests/store/test_commit_checks.py",),
    ),
    Mutation(
        "a dependency's name is looked up in all projects",
        "manager/store/sql/session_create_checked.sql",
        "(name = d.ref AND project = i.project)",
        "name = d.ref",
        ("tests/store/test_dependencies.py",),
    ),
    Mutation(
        "the pending timeout hides why the start failed",
        "manager/lifecycle/reconcile.py",
        "if retrying and session.untried_agents",
        "if retrying and not overdue and session.untried_agents",
        LIFECYCLE,
    ),
    Mutation(
        "the sweep stops after one batch",
        "manager/loops/garbage_collector.py",
        "        while deleted := await retention.delete_sessions(self._sessions_s):",
        "        if deleted := await retention.delete_sessions(self._sessions_s):",
        ("tests/store/test_retention.py",),
    ),
    Mutation(
        "a session is deleted by its creation instead of its end",
        "manager/store/sql/sessions_delete_ended.sql",
        "AND status_since < now() - make_interval(secs => $1)",
        "",
        ("tests/store/test_retention.py",),
    ),
    Mutation(
        "a leaked cancellation ends a task",
        "common/aio/supervisor.py",
        "if cancel_requested() or isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):",
        "if not isinstance(error, Exception):",
        SUPERVISOR,
    ),
    Mutation(
        "a task without an end may return",
        "common/aio/supervisor.py",
        "if self._finite or cancel_requested():",
        "if True:",
        SUPERVISOR,
    ),
    Mutation(
        "a failed write cancels its callers",
        "manager/store/batch_writer.py",
        "        error = StoreUnavailable(_INTERRUPTED)\n    if not",
        "        future.cancel()\n    if not",
        ("tests/unit/manager/test_batch_writer.py",),
    ),
    Mutation(
        "an unexpected error fails a whole batch",
        "manager/store/batch_writer.py",
        "elif len(batch) == 1 or isinstance(error, _BATCH_ERRORS):",
        "elif len(batch) == 1 or not isinstance(error, asyncpg.PostgresError):",
        ("tests/unit/manager/test_batch_writer.py",),
    ),
    Mutation(
        "a kernel that cannot be stopped is never destroyed",
        "agent/kernel/teardown.py",
        "        self.begin()\n        assert self._deadline is not None\n",
        "        self._deadline = self._deadline or 1e18\n",
        KERNEL_FAILURES,
    ),
    Mutation(
        "a kernel that cannot be observed is never destroyed",
        "agent/kernel/task.py",
        "        if self._end.is_overdue:\n",
        "        if False:\n",
        KERNEL_FAILURES,
    ),
    Mutation(
        "a failed creation is repeated",
        "agent/kernel/task.py",
        "            if self._creation_failure:\n",
        "            if False:\n",
        KERNEL_FAILURES,
    ),
    Mutation(
        "an orphan that could not be destroyed is omitted",
        "agent/kernel/manager.py",
        "            if not destroyed:\n",
        "            if False:\n",
        KERNEL_FAILURES,
    ),
    Mutation(
        "a stream outlives its sender",
        "agent/link/client.py",
        "        call.cancel()\n\n\ndef _decode",
        "        pass\n\n\ndef _decode",
        ("tests/wire/test_task_recovery.py::test_agent_whose_report_fails_connects_again",),
    ),
    Mutation(
        "a demoted primary is read on",
        "manager/store/database.py",
        'if getattr(settings, name, "off") == "on":',
        "if False:",
        ("tests/store/test_read_only.py",),
    ),
    Mutation(
        "an abandoned statement is not cancelled",
        "manager/store/database.py",
        "        await connection.close(timeout=CANCEL_TIMEOUT_S)",
        "        connection.terminate()",
        ("tests/store/test_database_limits.py",),
    ),
)
