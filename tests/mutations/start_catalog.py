"""Faults in the data about a start: first reports, site queues, status clocks. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TASK = "agent/kernel/task.py"
REPORTED = "agent/kernel/reported_state.py"
CLOCK = "agent/kernel/start_clock.py"
PROBING = "agent/kernel/probing.py"
KERNELS = "manager/lifecycle/kernels.py"
RECONCILE = "manager/lifecycle/reconcile.py"
STATES = ("tests/unit/agent/test_kernel_states.py",)
COUNTED = ("tests/unit/agent/test_start_clock.py",)
CLOCKS = ("tests/unit/manager/test_status_clocks.py",)
SITE = ("tests/unit/manager/test_site_lifecycle.py",)
STORED = ("tests/store/test_site_sessions.py",)
OBSERVED = ("tests/wire/test_heappe_runtime.py", "-k", "observed_whenever")

MUTATIONS = (
    Mutation(
        "a kernel is reported as starting before anything is known of it",
        REPORTED,
        "return ObservedState.UNKNOWN if self._basis is Basis.RECORD else self.value",
        "return self.value",
        STATES,
    ),
    Mutation(
        "a submission to a site is reported as a start",
        TASK,
        "if context.capabilities(spec).max_jobs is None:",
        "if True:",
        STATES,
    ),
    Mutation(
        "a start that was to be expected has a report of its own",
        REPORTED,
        "is ready before this is reported.\n            self._on_change(HOUSEKEEPING)",
        "is ready before this is reported.\n            self._on_change(coalescing_window(state))",
        STATES,
    ),
    Mutation(
        "a restarted agent counts the start before it has looked",
        TASK,
        "StartClock(context.clock.monotonic() if is_new else None)",
        "StartClock(context.clock.monotonic())",
        STATES,
    ),
    Mutation(
        "the queue of a site counts to the start timeout",
        CLOCK,
        "            self.runs_since = None\n            self.counted_s = 0.0",
        "            pass",
        COUNTED,
    ),
    Mutation(
        "the silence of a site counts to the start timeout",
        CLOCK,
        "if state is ObservedState.UNKNOWN:",
        "if False:",
        COUNTED,
    ),
    Mutation(
        "a job that waits again was ready before",
        PROBING,
        "        self._task = None\n        self._succeeded = False",
        "        self._task = None",
        STATES,
    ),
    Mutation(
        "a job is observed only when its state changes",
        "agent/runtimes/heappe/tracked.py",
        "return seen.state, seen.detail, seen.expected_start, ",
        'return seen.state, "", None, ',
        OBSERVED,
    ),
    Mutation(
        "a start is never corrected",
        KERNELS,
        "if {status, new} <= STARTING_STEPS:",
        "if False:",
        SITE,
    ),
    Mutation("the silence of a queue is not stored", KERNELS, " or silenced:", ":", SITE),
    Mutation(
        "a session does not wait with a job of it",
        RECONCILE,
        "Status.QUEUED if Status.QUEUED in live else max(",
        "max(",
        SITE,
    ),
    Mutation(
        "a deadline counts while nobody speaks of the job",
        RECONCILE,
        "if _is_silent(session):",
        "if False:",
        SITE,
    ),
    Mutation(
        "the manager ends starts whose site was silent",
        "manager/lifecycle/deadlines.py",
        "if spec.job is None or spec.walltime_s is None:",
        "if True:",
        CLOCKS,
    ),
    Mutation(
        "a silent agent is not told to the rules of deadlines",
        "manager/store/sessions/sql/session_snapshots.sql",
        "coalesce(n.status <> 'ALIVE' OR k.observed = 'UNKNOWN', false) AS silent",
        "coalesce(k.observed = 'UNKNOWN', false) AS silent",
        STORED,
    ),
    Mutation(
        "a silent site is not told to the rules of deadlines",
        "manager/store/sessions/sql/session_snapshots.sql",
        "coalesce(n.status <> 'ALIVE' OR k.observed = 'UNKNOWN', false) AS silent",
        "coalesce(n.status <> 'ALIVE', false) AS silent",
        STORED,
    ),
    Mutation(
        "a moment of silence forgets when a job is expected to start",
        "manager/store/platform/sql/kernel_observe.sql",
        "CASE WHEN i.observed = 'UNKNOWN' THEN k.expected_start",
        "CASE WHEN false THEN k.expected_start",
        STORED,
    ),
    Mutation(
        "a queue without a limit is stored for a release that needs one",
        "manager/store/groups/repository.py",
        "if options.hpc is not None and options.hpc.queue_timeout_s is None:",
        "if False:",
        STORED,
    ),
    Mutation(
        "jobs without a limit are no history of their site",
        "manager/store/groups/sql/start_history.sql",
        "spec ? 'job'",
        "spec ? 'queue_timeout_s'",
        STORED,
    ),
)
