"""Catalog of mutations: known faults that the tests must find.

Text that the code no longer contains makes a mutation stale; rewrite it for the new code.
"""

from __future__ import annotations

from tests.mutations import http_catalog, sandbox_catalog, scheduler_catalog
from tests.mutations.mutation import Mutation

LIFECYCLE = ("tests/unit/manager",)
SWEEPS = ("tests/store/test_sweeps.py",)
SUPERVISOR = ("tests/unit/common/test_supervisor.py", "--timeout", "30")
KERNEL_FAILURES = ("tests/unit/agent/test_kernel_failures.py",)
ONE_LIVE_ATTEMPT = ("tests/store/test_one_live_attempt.py",)
STREAM_FENCING = ("tests/store/test_stream_fencing.py",)

MUTATIONS = (
    *scheduler_catalog.MUTATIONS,
    *sandbox_catalog.MUTATIONS,
    *http_catalog.MUTATIONS,
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
        "elif known is None and spec.runtime not in unlisted:",
        "elif observed.get(kernel_id) not in ALIVE and spec.runtime not in unlisted:",
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
        "an unhealthy device is allocated at commit",
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
        "ends of kernels that nobody reconciled are not found by their time",
        "manager/store/sql/sessions_to_reconcile.sql",
        "AND e.status_since > now() - make_interval(secs => $2)",
        "AND e.status_since > now() + make_interval(secs => $2)",
        SWEEPS,
    ),
    Mutation(
        "the sweep of sessions does not look at their kernels",
        "manager/store/sql/sessions_sweep.sql",
        "k.attempt = c.attempt AND k.status <> c.status",
        "k.attempt = c.attempt AND false",
        SWEEPS,
    ),
    Mutation(
        "a sweep that restarts within a chunk goes on behind it",
        "manager/lifecycle/sweep.py",
        "        if not self._restarted:",
        "        if True:",
        SWEEPS,
    ),
    Mutation(
        "routes that are gone stay in the table",
        "manager/store/routes.py",
        "    return (known, list(routes)) if whole else (known[:SWEPT], known[SWEPT:])",
        "    return [], []",
        SWEEPS,
    ),
    Mutation(
        "a session that has left the queue unannounced stays in it",
        "manager/store/pending_cache.py",
        "            self._stale |= queue.unseen & queue.sessions.keys()",
        "            pass",
        ("tests/store/test_pending_cache.py",),
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
        "        call.cancel()\n\n\nasync def _if_many",
        "        pass\n\n\nasync def _if_many",
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
    Mutation(
        "the planner places a second live attempt",
        "manager/store/sql/pending_sessions.sql",
        "SELECT e.agent_id FROM kernels e WHERE s.attempt > 1",
        "SELECT e.agent_id FROM kernels e WHERE false",
        ONE_LIVE_ATTEMPT,
    ),
    Mutation(
        "the statement places a second live attempt",
        "manager/store/sql/session_place.sql",
        "AND (s.attempt = 1 OR",
        "AND (true OR",
        ONE_LIVE_ATTEMPT,
    ),
    Mutation(
        "the index allows a second live attempt",
        "manager/store/migrations/versions/0024_one_live_attempt.py",
        "CREATE UNIQUE INDEX",
        "CREATE INDEX",
        ONE_LIVE_ATTEMPT,
    ),
    Mutation(
        "every session allows overlapping attempts",
        "manager/store/sql/session_place.sql",
        "= 'allowed' IS TRUE AS overlap",
        "= 'allowed' IS NOT FALSE AS overlap",
        ONE_LIVE_ATTEMPT,
    ),
    Mutation(
        "an older stream keeps an agent alive",
        "manager/store/sql/agent_touch.sql",
        "a.incarnation = i.incarnation AND a.stream = i.stream AND",
        "",
        STREAM_FENCING,
    ),
    Mutation(
        "an older stream frees allocations",
        "manager/store/sql/allocation_release.sql",
        "WHERE a.stream = i.stream",
        "WHERE true",
        STREAM_FENCING,
    ),
    Mutation(
        "an older stream moves kernels",
        "manager/store/sql/kernel_observe.sql",
        "WHERE a.stream = i.stream",
        "WHERE true",
        STREAM_FENCING,
    ),
    Mutation(
        "terms repeat after a restore",
        "manager/store/sql/restored.sql",
        "greatest(term, extract(epoch FROM now())::bigint) + 1",
        "term",
        ("tests/store/test_restored.py",),
    ),
)
