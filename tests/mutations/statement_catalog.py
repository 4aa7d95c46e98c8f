"""Faults in the statements that move kernels and sessions: each lacks one of its guards, or
overwrites a value that must stay. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

LEASES = "manager/store/kernels/sql/kernel_leases_expire.sql"
PLACE = "manager/store/scheduling/sql/session_place.sql"
OBSERVE = "manager/store/platform/sql/kernel_observe.sql"
TRANSITION = "manager/store/sessions/sql/session_transition.sql"
TESTS = {
    LEASES: ("tests/store/test_guards_of_leases.py",),
    PLACE: ("tests/store/test_guards_of_placements.py",),
    OBSERVE: ("tests/store/test_guards_of_observations.py",),
    TRANSITION: ("tests/store/test_guards_of_transitions.py",),
}


def _fault(name: str, file: str, before: str, after: str) -> Mutation:
    return Mutation(name, file, before, after, TESTS[file])


MUTATIONS = (
    _fault(
        "a lease ends a kernel of another agent",
        LEASES,
        "k.agent_id = i.agent_id AND EXISTS",
        "EXISTS",
    ),
    _fault(
        "a lease ends a kernel whose agent is back",
        LEASES,
        "a.status <> 'ALIVE' AND a.last_seen = i.contact",
        "a.last_seen = i.contact",
    ),
    _fault(
        "a lease ends a kernel because another agent is silent since then",
        LEASES,
        "i ON a.id = i.agent_id\n",
        "i ON true\n",
    ),
    _fault(
        "a lease ends a kernel because another agent is silent",
        LEASES,
        "FROM input i JOIN silent a ON a.id = i.agent_id",
        "FROM input i JOIN silent a ON true",
    ),
    _fault("a lease ends all kernels of its agent", LEASES, "WHERE k.id = i.id AND", "WHERE"),
    _fault(
        "a stopped kernel whose lease is over has failed",
        LEASES,
        "k.status = 'TERMINATING' OR $5",
        "$5",
    ),
    _fault(
        "a kernel whose walltime is over has failed",
        LEASES,
        " OR $5 = 'walltime' THEN",
        " THEN",
    ),
    _fault(
        "a lease replaces the reason of a kernel that fails",
        LEASES,
        "CASE WHEN k.reason = '' THEN $5::text ELSE k.reason END",
        "$5::text",
    ),
    _fault(
        "a lease does not say how long it was",
        LEASES,
        "CASE WHEN $6::text <> '' THEN $6\n                  ELSE",
        "CASE WHEN true THEN $6 ELSE",
    ),
    _fault(
        "a lease ends a kernel that was never placed",
        LEASES,
        "('PENDING', :TERMINAL)",
        "(:TERMINAL)",
    ),
    _fault(
        "a lease ends a kernel although a report of its agent is being stored",
        LEASES,
        " FOR SHARE OF a",
        "",
    ),
    _fault("a session is placed that is not pending any more", PLACE, "s.status = i.old AND ", ""),
    _fault(
        "a session is placed as it was planned before", PLACE, "s.revision = i.revision AND ", ""
    ),
    _fault(
        "a cluster on one agent that dials out is not placed",
        PLACE,
        "u.id = i.id AND u.agent_id <> i.agent_id\n                        AND",
        "u.id = i.id AND",
    ),
    _fault(
        "any agent that dials out keeps clusters over several nodes from being placed",
        PLACE,
        "a.id IN (u.agent_id, i.agent_id)",
        "true",
    ),
    _fault(
        "a cluster that cannot be placed keeps others from being placed",
        PLACE,
        "WHERE u.id = i.id AND a.id IS NULL",
        "WHERE a.id IS NULL",
    ),
    _fault(
        "attempts of other sessions keep a session from being placed",
        PLACE,
        "WHERE e.session_id = s.id AND e.attempt",
        "WHERE e.attempt",
    ),
    _fault(
        "a kernel has a lease that its agent does not know",
        PLACE,
        "m.lease_s IS NOT NULL AND m.runtime = ANY (",
        "m.lease_s IS NOT NULL AND true OR m.runtime = ANY (",
    ),
    _fault(
        "a session that an agent may run already is placed",
        PLACE,
        "NOT n.ready AND (n.restored_at",
        "false AND (n.restored_at",
    ),
    _fault(
        "agents that run sessions which the database does not know keep others from being placed",
        PLACE,
        "jsonb_build_object('session_id', s.id)",
        "jsonb_build_object()",
    ),
    _fault(
        "placements lock counters in another order than releases",
        PLACE,
        "ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF c",
        "ORDER BY 1 DESC, 2, 3 FOR NO KEY UPDATE OF c",
    ),
    _fault(
        "an earlier attempt that failed keeps a session from being placed",
        PLACE,
        "e.status NOT IN (:TERMINAL)",
        "e.status NOT IN ('TERMINATED', 'CANCELLED')",
    ),
    _fault(
        "an agent writes kernels of others",
        OBSERVE,
        "k.status = i.old AND k.agent_id = i.agent_id",
        "k.status = i.old",
    ),
    _fault(
        "a late observation moves a kernel",
        OBSERVE,
        "k.status = i.old AND k.agent_id",
        "k.agent_id",
    ),
    _fault(
        "an observation moves a kernel that is being moved", OBSERVE, " FOR NO KEY UPDATE OF k", ""
    ),
    _fault("a stream that is being replaced moves kernels", OBSERVE, " FOR SHARE OF a", ""),
    _fault(
        "the stream of one agent stands for that of another",
        OBSERVE,
        "i ON a.id = i.agent_id\n",
        "i ON true\n",
    ),
    _fault(
        "a kernel that is not said to listen is nowhere",
        OBSERVE,
        "host = CASE WHEN i.port > 0 THEN i.host ELSE k.host END",
        "host = i.host",
    ),
    _fault(
        "an exit code is forgotten", OBSERVE, "coalesce(i.exit_code, k.exit_code)", "i.exit_code"
    ),
    _fault(
        "a reason is forgotten",
        OBSERVE,
        "CASE WHEN i.reason = '' THEN k.reason ELSE i.reason END",
        "i.reason",
    ),
    _fault(
        "the end of a log is forgotten",
        OBSERVE,
        "CASE WHEN i.log_tail = '' THEN k.log_tail ELSE i.log_tail END",
        "i.log_tail",
    ),
    _fault(
        "the detail of a step stays after it",
        OBSERVE,
        "i.detail = '' AND i.new = k.status",
        "i.detail = ''",
    ),
    _fault(
        "a kernel is not healthy since now, again and again",
        OBSERVE,
        "coalesce(k.unhealthy_since, now())",
        "now()",
    ),
    _fault(
        "a kernel that has ended was healthy",
        OBSERVE,
        (
            "unhealthy_since = CASE WHEN i.new <> 'RUNNING' THEN k.unhealthy_since\n"
            "                           WHEN"
        ),
        "unhealthy_since = CASE WHEN",
    ),
    _fault(
        "a job that nobody speaks of has no expected start",
        OBSERVE,
        "CASE WHEN i.observed = 'UNKNOWN' THEN k.expected_start\n                          ELSE",
        "CASE WHEN false THEN k.expected_start ELSE",
    ),
    _fault(
        "a walltime begins in the future",
        OBSERVE,
        "least(now(),\n                   to_timestamp(i.ends_at)",
        "(to_timestamp(i.ends_at)",
    ),
    _fault(
        "a walltime begins anew",
        OBSERVE,
        "WHEN k.started_at IS NULL AND i.ends_at > 0",
        "WHEN i.ends_at > 0",
    ),
    _fault(
        "a late transition moves a session",
        TRANSITION,
        "s.status = i.old AND s.revision = i.revision",
        "s.status = i.old",
    ),
    _fault(
        "a transition moves a session in another status",
        TRANSITION,
        "s.status = i.old AND s.revision = i.revision",
        "s.revision = i.revision",
    ),
    _fault("a transition moves a session that is being moved", TRANSITION, " FOR UPDATE OF s", ""),
    _fault(
        "a transition is compared with another session",
        TRANSITION,
        "s JOIN input i ON s.id = i.id",
        "s JOIN input i ON true",
    ),
    _fault(
        "a session is ready since its last change",
        TRANSITION,
        "'RUNNING' AND i.old <> i.new THEN",
        "'RUNNING' THEN",
    ),
    _fault(
        "a status begins with each change",
        TRANSITION,
        "CASE WHEN i.new = i.old THEN s.status_since ELSE now() END",
        "now()",
    ),
    _fault(
        "a result is forgotten",
        TRANSITION,
        "coalesce(i.result, s.result)",
        "coalesce(i.result, 'UNDEFINED')",
    ),
    _fault(
        "each new attempt is a requeue",
        TRANSITION,
        "(i.event = 'requeue')::int",
        "(i.next_kernel IS NOT NULL)::int",
    ),
    _fault(
        "a transition ends kernels of earlier attempts",
        TRANSITION,
        "AND k.attempt = m.old_attempt\n",
        "\n",
    ),
    _fault(
        "a transition ends kernels that go on",
        TRANSITION,
        "(m.kernel_status IS NOT NULL OR k.status = 'PENDING')",
        "(true OR k.status = 'PENDING')",
    ),
    _fault(
        "kernels that were not placed stay when their session starts",
        TRANSITION,
        "(m.kernel_status IS NOT NULL OR k.status = 'PENDING')",
        "m.kernel_status IS NOT NULL",
    ),
    _fault(
        "a transition replaces the reason of a kernel that fails",
        TRANSITION,
        "CASE WHEN k.reason = '' THEN m.reason ELSE k.reason END",
        "m.reason",
    ),
    _fault(
        "a session that fails wakes none that depend on it",
        TRANSITION,
        "m.new IN (:TERMINAL)",
        "m.new IN ('TERMINATED', 'CANCELLED')",
    ),
)
