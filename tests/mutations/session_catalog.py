"""Faults in pipelines, templates, idle criteria and the reuse of equal sessions. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CREATE = "manager/store/pipelines/sql/pipeline_create.sql"
GRAPH = "manager/workloads/pipelines.py"
IDLE = "manager/workloads/idle.py"
TEMPLATES = "manager/workloads/templates.py"
STORED = ("tests/store/test_pipelines.py",)
PURE = ("tests/unit/manager/test_pipelines.py",)
MERGE = ("tests/unit/manager/test_templates.py",)
CRITERIA = ("tests/unit/manager/test_idle.py",)
STOPS = ("tests/store/test_session_stops.py",)
CHECKPOINTS = ("tests/unit/agent/test_checkpoint_signal.py",)
ADMISSION = ("tests/store/test_group_admission.py",)
SETS = ("tests/tidy/test_statuses.py",)

MUTATIONS = (
    Mutation(
        "a failed element of an array is noticed only if all failed",
        "manager/workloads/pipelines.py",
        "if after.of_any and elements > 1 else after.on",
        "if False else after.on",
        ("tests/store/test_pipelines.py", "-k", "elements_of_an_array"),
    ),
    Mutation(
        "a step begins while elements of the array before it run",
        "manager/store/schema/functions/dependency_outcomes.sql",
        "WHEN u.status NOT IN (:TERMINAL) THEN 'unmet'",
        "WHEN u.status NOT IN (:TERMINAL) THEN 'met'",
        ("tests/store/test_pipelines.py", "-k", "elements_of_an_array"),
    ),
    Mutation(
        "nobody notices that no element of an array failed",
        "manager/store/sessions/sql/sessions_to_reconcile.sql",
        "d.condition LIKE 'any-%') d",
        "false) d",
        ("tests/store/test_pipelines.py", "-k", "elements_of_an_array"),
    ),
    Mutation(
        "a group for some users is for every project",
        "manager/store/groups/sql/fragments/group_admits.sql",
        "\n            AND jsonb_typeof(g.options -> 'users') IS DISTINCT FROM 'array')",
        ")",
        ADMISSION,
    ),
    Mutation(
        "a group for some projects is for nobody else's users",
        "manager/identity/limits.py",
        "return by_project or user in (options.users or ())",
        "return by_project",
        ADMISSION,
    ),
    Mutation(
        "a group without types allows system sessions",
        "manager/store/groups/sql/fragments/group_allows_type.sql",
        "ELSE i.type IN (:ORDINARY) END",
        "ELSE true END",
        ADMISSION,
    ),
    Mutation(
        "a status has no style on the command line",
        "cli/output.py",
        "Status.TERMINATING, EndpointStatus.BUSY",
        "EndpointStatus.BUSY",
        SETS,
    ),
    Mutation(
        "a statement lists the statuses itself",
        "manager/store/sessions/sql/session_remove.sql",
        "s.status IN (:TERMINAL)",
        "s.status IN ('TERMINATED', 'CANCELLED', 'ERROR')",
        SETS,
    ),
    Mutation(
        "a set of statuses lacks one",
        "common/model/status.py",
        "BEFORE_RUNNING = frozenset({Status.PENDING, *STARTING})",
        "BEFORE_RUNNING = frozenset({Status.PENDING, Status.SCHEDULED})",
        SETS,
    ),
    Mutation(
        "a retry does not look whether steps are still pending",
        CREATE,
        "WHERE (SELECT count(*) FROM kept) < cardinality($42::uuid[])",
        "WHERE false",
        ("tests/store/test_pipeline_retry_race.py",),
    ),
    Mutation(
        "a pending step does not wait for the new run",
        CREATE,
        "UPDATE session_dependencies d SET depends_on = r.new",
        "UPDATE session_dependencies d SET depends_on = r.old",
        STORED,
    ),
    Mutation(
        "a step after a success begins after any end",
        CREATE,
        "SELECT d.session_id, d.depends_on, d.condition",
        "SELECT d.session_id, d.depends_on, 'any'",
        STORED,
    ),
    Mutation(
        "sessions of a refused pipeline are created",
        CREATE,
        "FROM input i WHERE NOT EXISTS (SELECT FROM refused) ORDER BY i.n\n    RETURNING 1",
        "FROM input i ORDER BY i.n\n    RETURNING 1",
        STORED,
    ),
    Mutation(
        "a pipeline forgets its idempotency key",
        CREATE,
        "WHERE i.key IS NOT NULL AND NOT EXISTS (SELECT FROM refused)",
        "WHERE false",
        STORED,
    ),
    Mutation(
        "an array runs all of its elements at once",
        GRAPH,
        "waits[follows, _AT_ONCE] = None",
        "pass",
        STORED + PURE,
    ),
    Mutation(
        "a retry does not count the pending elements of an array",
        "manager/api/pipelines/handlers.py",
        "pipelines.graph(steps, again | pending)",
        "pipelines.graph(steps, again)",
        STORED,
    ),
    Mutation(
        "a pending element begins beside the ones that run again",
        CREATE,
        "SELECT t.session_id, t.depends_on, 'any' FROM turns_begun t",
        "SELECT t.session_id, t.depends_on, 'any' FROM turns_begun t WHERE false",
        STORED,
    ),
    Mutation(
        "a pending element waits for one that is no longer before it",
        CREATE,
        "DELETE FROM session_dependencies d USING turns_ended t\n    WHERE d.session_id",
        "DELETE FROM session_dependencies d USING turns_ended t\n    WHERE false AND d.session_id",
        STORED,
    ),
    Mutation(
        "the dependencies of a pending element are miscounted after a retry",
        CREATE,
        "dependencies = s.dependencies + coalesce(w.more, 0)",
        "dependencies = s.dependencies",
        STORED,
    ),
    Mutation(
        "a retry leaves out what comes after a failed step",
        GRAPH,
        "again |= {item for item in items(step) if states[item] is not StepState.PENDING}",
        "pass",
        STORED + PURE,
    ),
    Mutation(
        "a pipeline with a failed step has succeeded",
        GRAPH,
        "for state in (StepState.FAILED, StepState.STOPPED):",
        "for state in (StepState.STOPPED,):",
        STORED + PURE,
    ),
    Mutation(
        "what is retried for somebody runs as freely as the administrator",
        "manager/api/pipelines/handlers.py",
        "    scope = scope.isolating(owner.user != found.owner)\n",
        "",
        STORED,
    ),
    Mutation(
        "the defaults of a group override the caller",
        TEMPLATES,
        "merge(merge(fields, defaults), overrides)",
        "merge(merge(fields, overrides), defaults)",
        MERGE,
    ),
    Mutation(
        "null overrides nothing of a template",
        TEMPLATES,
        "            merged.pop(name, None)\n",
        "            pass\n",
        MERGE,
    ),
    Mutation(
        "a parameter has no least value",
        "common/model/templates.py",
        "if isinstance(value, int | float) and self.min is not None and value < self.min:",
        "if False:",
        MERGE,
    ),
    Mutation(
        "idle time begins before the grace period has ended",
        IDLE,
        "return max(seen.traffic_at, settings.grace_s) + settings.traffic_s - now",
        "return seen.traffic_at + settings.traffic_s - now",
        CRITERIA,
    ),
    Mutation(
        "use that is not measured counts as none",
        IDLE,
        "        if (used := seen.used.get(name)) is not None and math.isfinite(used)\n",
        "        if math.isfinite(used := seen.used.get(name) or 0.0)\n",
        CRITERIA,
    ),
    Mutation(
        "time without a report of traffic counts as idle",
        IDLE,
        "traffic_s = state.traffic_s + (0.0 if look.traffic_known else elapsed)",
        "traffic_s = state.traffic_s",
        CRITERIA,
    ),
    Mutation(
        "a session ends without having been warned for so long",
        IDLE,
        "in_s = max(in_s, warned_s + settings.warning_s - now, state.extended_s - now, 0.0)",
        "in_s = max(in_s, state.extended_s - now, 0.0)",
        CRITERIA,
    ),
    Mutation(
        "what shares a run that was stopped ends with it",
        "manager/lifecycle/reconcile.py",
        "return stopped or shared.status is Status.CANCELLED",
        "return False",
        ("tests/store/test_reuse.py",),
    ),
    Mutation(
        "a session that shares a run that failed succeeds",
        "manager/lifecycle/reconcile.py",
        "session, event, lost_grace_s, shared.reason, detail=detail, result=shared.result",
        "session, event, lost_grace_s, shared.reason, detail=detail, result=Result.SUCCESS",
        ("tests/store/test_reuse.py",),
    ),
    Mutation(
        "a stop ends with its request",
        "manager/loops/stop_controller.py",
        "await self._terminator.carry_out(stop, self._clock, for_s=EACH_S, term=term)",
        "StopState.DONE",
        STOPS,
    ),
    Mutation(
        "a stop also stops what was created after it",
        "manager/store/sessions/sql/session_stop_remaining.sql",
        "WHERE t.id = $1 AND s.created_at <= t.asked_at\n",
        "WHERE t.id = $1\n",
        STOPS,
    ),
    Mutation(
        "the first steps of a pipeline stop first, and others begin",
        "manager/store/sessions/sql/session_stop_remaining.sql",
        "ORDER BY place DESC",
        "ORDER BY place",
        STOPS,
    ),
    Mutation(
        "the end of a stop ends one that was asked for since",
        "manager/store/sessions/sql/session_stop_done.sql",
        "WHERE id = $1 AND asked_at = $2",
        "WHERE id = $1 AND $2::timestamptz IS NOT NULL",
        STOPS,
    ),
    Mutation(
        "a pipeline is retried while it is being stopped",
        "manager/api/pipelines/handlers.py",
        "if found.stopping:",
        "if False:",
        STOPS,
    ),
    Mutation(
        "each step of a pipeline is stopped by statements of its own",
        "manager/termination.py",
        "TOGETHER = 200",
        "TOGETHER = 1",
        STOPS,
    ),
    Mutation(
        "who stops sessions of a user stops those of other projects",
        "manager/store/sessions/sql/session_stop_remaining.sql",
        " AND (t.projects IS NULL OR s.project = ANY (t.projects))",
        "",
        STOPS,
    ),
    Mutation(
        "anybody stops what another user runs",
        "manager/api/sessions/handlers.py",
        '"the sessions that are asked to stop", user, ',
        '"the sessions that are asked to stop", call.scope.owner.user, ',
        STOPS,
    ),
    Mutation(
        "a program that saves its state gets SIGTERM at once",
        "agent/kernel/teardown.py",
        "            self._stops_at = self._clock.monotonic() + spec.checkpoint_grace_s\n",
        "            self._stops_at = self._clock.monotonic()\n",
        CHECKPOINTS,
    ),
    Mutation(
        "a program that cannot be told to save its state is waited for",
        "agent/kernel/teardown.py",
        "        if asked or (running and spec.cluster is not None):\n",
        "        if asked or running:\n",
        CHECKPOINTS,
    ),
    Mutation(
        "a kernel of a cluster goes while others save their state",
        "agent/kernel/teardown.py",
        "        if asked or (running and spec.cluster is not None):\n",
        "        if asked:\n",
        CHECKPOINTS,
    ),
    Mutation(
        "a kernel that starts is told to save its state",
        "agent/kernel/teardown.py",
        "        if running:\n",
        "        if True:\n",
        CHECKPOINTS,
    ),
    Mutation(
        "an agent writes what the release before does not read",
        "agent/kernel/checkpoint.py",
        "    if not record.spec.checkpoint_signal:",
        "    if False:",
        CHECKPOINTS,
    ),
    Mutation(
        "a session takes more time to save its state than its group allows",
        "common/model/checkpointing.py",
        "return min(asked_s or 0.0, MAX_GRACE_S if bound_s is None else bound_s)",
        "return asked_s or 0.0",
        ("tests/store/test_preemption.py",),
    ),
)
