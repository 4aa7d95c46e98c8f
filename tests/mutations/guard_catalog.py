"""Guards behind another guard, whose tests would therefore not notice their absence: checks at
commit, kernel leases, start numbers, concurrent reservations. A part of the catalog."""

from __future__ import annotations

from pathlib import Path

from tests.mutations.mutation import Mutation

PLACE = "manager/store/scheduling/sql/session_place.sql"
LEASES = "agent/kernel/leases.py"
RESERVATION = "manager/scheduling/backfill/reservation.py"
COMMIT = ("tests/store/test_commit_checks.py",)
LEASED = ("tests/unit/agent/test_lease_contact.py",)
STARTS = ("tests/unit/agent/test_checkpoint.py",)
RESERVED = ("tests/unit/manager/test_reservations.py",)
DISK = ("tests/conformance/test_full_state_disk.py",)
SHIM = "agent/runtimes/process/shim.py"
STOPS = ("tests/unit/manager/test_stops_by_the_platform.py",)
REPORTS = ("tests/store/test_reports.py",)
LEASE_OF_LEADERS = ("tests/store/test_leader.py",)
MAIN = (
    "SELECT a.status = 'ALIVE' AND a.ready AND NOT a.draining\n"
    "                  AND a.detached_stream IS DISTINCT FROM a.stream"
)
SUB = (
    "AND a.status = 'ALIVE' AND a.ready AND NOT a.draining\n                        AND a.detached"
)


def _without(what: str, before: str, part: str) -> Mutation:
    return Mutation(
        f"a session is placed on an agent that {what}",
        PLACE,
        before,
        before.replace(part, ""),
        COMMIT,
    )


# Statements that only a leader runs, each of which checks its lease.
LEADER_WRITES = {
    "agents_mark_silent": "term = $5 AND expires_at > now()",
    "deadlines_move": "term = $2 AND expires_at > now()",
    "groups_hold_losses": "term = $2 AND expires_at > now()",
    "holds_record": "term = $6 AND expires_at > now()",
    "kernel_leases_expire": "term = $4 AND expires_at > now()",
    "session_create_checked": "term = ANY ($31::bigint[]) AND expires_at > now()",
    "session_place": "term = $1 AND expires_at > now()",
    "session_transition": "term = ANY ($19::bigint[]) AND expires_at > now()",
}
# Statements that keep another manager from becoming leader at the same time.
LOCKED_WRITES = (
    "agents_mark_silent",
    "kernel_leases_expire",
    "session_create_checked",
    "session_place",
    "session_transition",
)
RECONCILE = "manager/lifecycle/reconcile.py"
SOURCE = Path(__file__).parents[2] / "src" / "moorage"
REASONS = ("tests/unit/manager/test_reconcile_reasons.py",)


def _statement(name: str) -> str:
    [file] = (SOURCE / "manager" / "store").glob(f"*/sql/{name}.sql")
    return str(file.relative_to(SOURCE))


MUTATIONS = (
    *(
        Mutation(
            f"{name.replace('_', ' ')}: a leader whose lease is over",
            _statement(name),
            check,
            check.removesuffix(" AND expires_at > now()"),
            ("tests/store/test_leader_writes.py",),
        )
        for name, check in LEADER_WRITES.items()
    ),
    *(
        Mutation(
            f"{name.replace('_', ' ')}: a leader that is replaced meanwhile",
            _statement(name),
            "expires_at > now() FOR SHARE",
            "expires_at > now()",
            ("tests/store/test_leader_writes.py", "-k", "replaced"),
        )
        for name in LOCKED_WRITES
    ),
    _without("is silent", MAIN, "a.status = 'ALIVE' AND "),
    _without("is not ready", MAIN, "a.ready AND "),
    _without("is leaving", MAIN, " AND NOT a.draining"),
    _without(
        "has lost its stream",
        MAIN,
        "\n                  AND a.detached_stream IS DISTINCT FROM a.stream",
    ),
    _without("is silent, for a sub kernel", SUB, "a.status = 'ALIVE' AND "),
    _without("is not ready, for a sub kernel", SUB, " AND a.ready"),
    _without("is leaving, for a sub kernel", SUB, " AND NOT a.draining"),
    _without(
        "has lost its stream, for a sub kernel",
        "AND a.detached_stream IS DISTINCT FROM a.stream\n                      WHERE u.id",
        "AND a.detached_stream IS DISTINCT FROM a.stream\n                      ",
    ),
    Mutation(
        "a cluster is placed although its main agent dials out",
        PLACE,
        "JOIN agents a ON a.id IN (u.agent_id, i.agent_id)",
        "JOIN agents a ON a.id = u.agent_id",
        COMMIT,
    ),
    Mutation(
        "a cluster is placed although the agent of a sub kernel dials out",
        PLACE,
        "JOIN agents a ON a.id IN (u.agent_id, i.agent_id)",
        "JOIN agents a ON a.id = i.agent_id",
        COMMIT,
    ),
    Mutation(
        "a late answer counts as contact of that moment",
        LEASES,
        "contact = sent_at / 1000",
        "contact = self._clock.boottime()",
        LEASED,
    ),
    Mutation(
        "an older answer shortens a lease",
        LEASES,
        "if contact <= self._contact:",
        "if False:",
        LEASED,
    ),
    Mutation(
        "a kernel starts on a lease that is nearly over",
        LEASES,
        "while self._contact + lease_s / 2 < self._clock.boottime():",
        "while self._contact + lease_s < self._clock.boottime():",
        LEASED,
    ),
    Mutation(
        "the shortest lease is forgotten with the first of its kernels",
        LEASES,
        "            self._durations[lease_s] -= 1\n",
        "            self._durations[lease_s] = 0\n",
        LEASED,
    ),
    Mutation(
        "starts follow a clock that was set back",
        "agent/kernel/checkpoint.py",
        "start = max(last_start + 1, int(clock.now().timestamp() * 1000))",
        "start = int(clock.now().timestamp() * 1000)",
        STARTS,
    ),
    Mutation(
        "two overdue sessions hold the same agents",
        RESERVATION,
        "excluded = set(self._guards_of)",
        "excluded = set[int]()",
        RESERVED,
    ),
    Mutation(
        "two overdue sessions with constraints hold the same agents",
        RESERVATION,
        "for node in self._acceptable(self._guards_of.keys())\n                if all(",
        "for node in self._acceptable()\n                if all(",
        RESERVED,
    ),
    Mutation(
        "two blocked sessions wait for the same end",
        RESERVATION,
        (
            "            found = self._index.known.first(\n"
            "                self._pool, self._item.shape, self._now, self._guards_of.keys()\n"
            "            )"
        ),
        "            found = self._index.known.first(self._pool, self._item.shape, self._now, set())",
        RESERVED,
    ),
    Mutation(
        "two blocked sessions with constraints wait for the same end",
        RESERVATION,
        "for node in self._acceptable(self._guards_of.keys()):\n            timeline",
        "for node in self._acceptable():\n            timeline",
        RESERVED,
    ),
    Mutation(
        "two blocked clusters wait for the same ends",
        RESERVATION,
        "for node in self._acceptable(self._guards_of.keys())\n                if node.fits_when_empty",
        "for node in self._acceptable()\n                if node.fits_when_empty",
        RESERVED,
    ),
    Mutation(
        "a requeued session is overdue at once",
        "manager/store/sessions/sql/session_transition.sql",
        "bypassed = CASE WHEN i.new = 'PENDING' THEN 0 ELSE s.bypassed END",
        "bypassed = s.bypassed",
        ("tests/store/test_requeue.py",),
    ),
    Mutation(
        "any agent frees what a kernel holds",
        "manager/store/platform/sql/allocation_release.sql",
        "a.kernel_id = i.kernel_id AND a.agent_id = i.agent_id\n      AND",
        "a.kernel_id = i.kernel_id AND",
        REPORTS,
    ),
    Mutation(
        "a lease expires although its agent was heard from",
        "manager/store/kernels/sql/kernel_leases_expire.sql",
        "a.status <> 'ALIVE' AND a.last_seen = i.contact",
        "a.status <> 'ALIVE'",
        ("tests/store/test_lease_expiry_store.py",),
    ),
    Mutation(
        "an exit needs space that may be gone by then",
        SHIM,
        'for name in ("pids", "exit"):',
        'for name in ("pids",):',
        DISK,
    ),
    Mutation(
        "a small file takes new space although some is reserved for it",
        "agent/runtimes/process/shim_system.py",
        '    temporary = f"{path}.reserved"\n',
        '    temporary = f"{path}.{os.getpid()}"\n',
        DISK,
    ),
    Mutation(
        "nothing is stopped on a full disk",
        "agent/runtimes/process/runtime.py",
        "        except OSError as error:\n            # The directory was deleted or",
        "        except FileNotFoundError as error:\n            # The directory was deleted or",
        DISK,
    ),
    Mutation(
        "the first command in a kernel needs a new file",
        "agent/runtimes/process/execution.py",
        "    os.close(_open_lock(folder / _LOCK))\n",
        "",
        DISK,
    ),
    Mutation(
        "work is placed on an agent that says that it can start none",
        "manager/store/platform/sql/agent_upsert.sql",
        "refuses_orders OR not_ready <> '', unknown_kernels",
        "refuses_orders, unknown_kernels",
        ("tests/store/test_agents_not_ready.py",),
    ),
    Mutation(
        "an agent turns from full to not full with every file",
        "agent/state/free_space.py",
        "few_bytes = free < (ENOUGH_BYTES if was_full else LEAST_BYTES)",
        "few_bytes = free < LEAST_BYTES",
        ("tests/unit/agent/test_free_space.py",),
    ),
    Mutation(
        "one agent is held again and again",
        RESERVATION,
        "            excluded.add(found[1].rank)\n",
        "",
        RESERVED,
    ),
    Mutation(
        "a cluster on one agent is awaited on several",
        RESERVATION,
        "[demands] if single_node else",
        "[demands] if False else",
        RESERVED,
    ),
    Mutation(
        "what an agent's devices are split into is not asked for",
        RESERVATION,
        "always = item.unconstrained and not quantized",
        "always = item.unconstrained",
        RESERVED,
    ),
    Mutation(
        "agents that a session names are found by an index of all",
        RESERVATION,
        "item.unconstrained and item.shape.single_kernel and not pool.quantized",
        "item.shape.single_kernel and not pool.quantized",
        RESERVED,
    ),
    Mutation(
        "an overdue session comes behind any other one",
        RESERVATION,
        "sorted(self._acceptable(), key=self._reserved_until)",
        "list(self._acceptable())",
        RESERVED,
    ),
    Mutation(
        "an agent that is held for a cluster could take its smallest kernel",
        RESERVATION,
        "for _, _, rank in fits[max(self._parts)]",
        "for _, _, rank in fits[min(self._parts)]",
        RESERVED,
    ),
    Mutation(
        "an agent that is held for a cluster is kept for its smallest kernel",
        RESERVATION,
        "[max(self._parts)] *",
        "[min(self._parts)] *",
        RESERVED,
    ),
    Mutation(
        "what ends counts as room for a session that has no start",
        RESERVATION,
        "left = node.copy() if starts_at is None else capacity_at(node, starts_at, self._now)",
        "left = capacity_at(node, starts_at or 2**62, self._now)",
        RESERVED,
    ),
    Mutation(
        "an agent where this pass has placed something is passed over",
        RESERVATION,
        "                and not node.planned\n",
        "",
        RESERVED,
    ),
    Mutation(
        "an agent with an earlier end is passed over",
        RESERVATION,
        "timeline[0][0] >= best[0]",
        "timeline[0][0] < best[0]",
        RESERVED,
    ),
    Mutation(
        "one more agent is held than the bound says",
        RESERVATION,
        "_MAX_SPARE = 16",
        "_MAX_SPARE = 17",
        RESERVED,
    ),
    Mutation(
        "agents are held for one more session than the bound says",
        RESERVATION,
        "MAX_HOLDING = 8",
        "MAX_HOLDING = 9",
        RESERVED,
    ),
    Mutation(
        "a lease is anybody's while it lasts",
        "manager/store/platform/sql/lease_acquire.sql",
        "WHERE l.holder = excluded.holder OR",
        "WHERE true OR",
        LEASE_OF_LEADERS,
    ),
    Mutation(
        "a lease that has ended goes on in its term",
        "manager/store/platform/sql/lease_acquire.sql",
        "l.holder = excluded.holder AND l.expires_at > now()",
        "l.holder = excluded.holder",
        LEASE_OF_LEADERS,
    ),
    Mutation(
        "a renewal begins a new term",
        "manager/store/platform/sql/lease_acquire.sql",
        (
            "CASE WHEN l.holder = excluded.holder AND l.expires_at > now() THEN l.term\n"
            "                ELSE l.term + 1 END"
        ),
        "l.term + 1",
        LEASE_OF_LEADERS,
    ),
    Mutation(
        "what a kernel holds is freed while it runs",
        "manager/store/platform/sql/allocation_release.sql",
        "AND k.id = a.kernel_id AND k.status IN (:TERMINAL)",
        "AND k.id = a.kernel_id",
        REPORTS,
    ),
    Mutation(
        "what a kernel held is freed twice",
        "manager/store/platform/sql/allocation_release.sql",
        "a.agent_id = i.agent_id\n      AND a.released_at IS NULL",
        "a.agent_id = i.agent_id",
        REPORTS,
    ),
    Mutation(
        "a lease ends a kernel that has ended otherwise",
        "manager/store/kernels/sql/kernel_leases_expire.sql",
        "\n  AND k.status NOT IN ('PENDING', :TERMINAL)",
        "",
        ("tests/store/test_lease_expiry_store.py",),
    ),
    Mutation(
        "a drain stops what it could move",
        RECONCILE,
        "requeue = session.spec.type is SessionType.BATCH and session.spec.retries > 0",
        "requeue = False",
        STOPS,
    ),
    Mutation(
        "an earlier attempt on a lost agent ends a session that may run beside it",
        RECONCILE,
        'session.spec.lost_agent_policy == "fail" and not session.overlap:',
        'session.spec.lost_agent_policy == "fail":',
        STOPS,
    ),
    Mutation(
        "a job that its site does not know yet waits for that site",
        RECONCILE,
        "if not is_job or session.status is Status.SCHEDULED:",
        "if not is_job:",
        STOPS,
    ),
    Mutation(
        "a session that is stopping is stopped again",
        RECONCILE,
        "if session.status in TERMINAL or session.status is Status.TERMINATING:",
        "if session.status in TERMINAL:",
        REASONS,
    ),
    Mutation(
        "a session that has ended is stopped",
        RECONCILE,
        "if session.status in TERMINAL or session.status is Status.TERMINATING:",
        "if session.status is Status.TERMINATING:",
        REASONS,
    ),
    Mutation(
        "a main kernel that is gone gives no reason",
        RECONCILE,
        "            main.reason or Reason.KERNEL_GONE,\n            detail=main.detail,",
        "            main.reason,\n            detail=main.detail,",
        REASONS,
    ),
    Mutation(
        "a sub kernel that is gone gives no reason",
        RECONCILE,
        "reason = lost[0].reason or Reason.KERNEL_GONE",
        "reason = lost[0].reason",
        REASONS,
    ),
    Mutation(
        "a cluster ends for the agents that it may lose",
        RECONCILE,
        "set(lost) <= set(lost_sub_kernels(session))",
        "set(lost) < set(lost_sub_kernels(session))",
        REASONS,
    ),
    Mutation(
        "a lost agent requeues what shall wait for it",
        RECONCILE,
        'session.overlap and policy == "requeue" and may_requeue',
        "session.overlap and may_requeue",
        REASONS,
    ),
    Mutation(
        "a lost agent requeues more often than is allowed",
        RECONCILE,
        'policy == "requeue" and may_requeue(session, Reason.AGENT_LOST)',
        'policy == "requeue"',
        REASONS,
    ),
    Mutation(
        "a late stop of a kernel without an agent fails",
        RECONCILE,
        'agents = sorted({kernel.agent_id or "" for kernel in live})',
        "agents = sorted({kernel.agent_id for kernel in live})",
        REASONS,
    ),
    Mutation(
        "a stopped agent requeues what may not run again",
        RECONCILE,
        "runs_again = session.spec.type is SessionType.BATCH and session.spec.retries > 0",
        "runs_again = session.spec.type is SessionType.BATCH",
        REASONS,
    ),
    Mutation(
        "a requeue forgets why",
        RECONCILE,
        'detail = f"{detail}; {retry}" if detail else retry',
        "detail = retry",
        REASONS,
    ),
    Mutation(
        "a requeue without a detail begins with a semicolon",
        RECONCILE,
        'detail = f"{detail}; {retry}" if detail else retry',
        'detail = f"{detail}; {retry}"',
        REASONS,
    ),
    Mutation(
        "how the kernels of a stopped session ended hides why it was stopped",
        RECONCILE,
        "reason = session.reason or main.reason",
        "reason = main.reason",
        REASONS,
    ),
    Mutation(
        "a stopped session without a reason has none of its kernels",
        RECONCILE,
        "reason = session.reason or main.reason",
        "reason = session.reason",
        REASONS,
    ),
    Mutation(
        "the demo's model replaces a file of the same name",
        "demo/command.py",
        "    if file.exists():",
        "    if False:",
        ("tests/unit/demo",),
    ),
)
