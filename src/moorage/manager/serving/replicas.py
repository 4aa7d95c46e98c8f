"""Replica plans: which replicas of an endpoint to start, drain and stop. Pure.

A replica *stays* if it can serve as long as the endpoint needs it: it has the endpoint's revision
and is healthy, on an agent that is ALIVE and not drained, and not at the end of its lifetime.
Others *leave*. For each replica that leaves, another one starts and must be ready first: by choice,
there are never fewer ready replicas than desired, and in a rollout never more than
``max_unavailable`` fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, Status
from moorage.manager.serving.groups import returning, returns_at, tries_next_at
from moorage.manager.serving.lifetime import drains_at, successor_due_at
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

# A failed replica is replaced after 5, 10, 20 … seconds. After FAILURES_MAX in a row, no replica is
# started until the endpoint is changed.
BACKOFF_FIRST_S = 5.0
BACKOFF_MAX_S = 300.0
FAILURES_MAX = 5
# A replica that was ready for this long shows that the endpoint's spec works: earlier failures are
# no longer counted.
STABLE_S = 60.0
# An unhealthy replica whose replacement cannot be placed is stopped after this time to make room.
UNHEALTHY_S = 120.0
# Failures of the node, not of the replica. Such replicas are replaced without a backoff.
_NODE_FAILURES = frozenset({Reason.AGENT_LOST, Reason.AGENT_SHUTDOWN, Reason.KERNEL_GONE})
# Replicas that leave for one of these reasons count against ``max_surge``. The others are replaced
# immediately, because they cannot wait.
BY_CHOICE = frozenset({Reason.REVISION_REPLACED, Reason.SCALED_DOWN, Reason.BUDGET_EXHAUSTED})
# If neither a proxy nor its engine reports a draining replica's requests, it is stopped after this
# time, in which the proxies learn that it is draining. Its engine then finishes its requests within
# its own grace period.
SETTLE_S = 5.0
_LEAVE_ORDER = (
    Reason.AGENT_DRAINED,
    Reason.MAX_LIFETIME,
    Reason.WALLTIME,
    Reason.REVISION_REPLACED,
    Reason.PREFERRED_GROUP,
)
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """``start_stable``: with a canary, replicas of the stable revision. ``revive``: draining
    replicas that should serve again. ``failures``: consecutive failures of the current revision
    since a replica was stable. ``retry_at``: end of the backoff, if any. ``look_at``: when the next
    plan may differ even if nothing else changes. ``roll_back_to``: the revision to return to,
    because the current one has failed. ``is_complete``: all replicas have the current revision and
    are ready.
    """

    start: int = 0
    start_stable: int = 0
    stop: tuple[tuple[SessionId, Reason], ...] = ()
    drain: tuple[tuple[SessionId, Reason], ...] = ()
    revive: tuple[SessionId, ...] = ()
    failures: int = 0
    retry_at: datetime | None = None
    look_at: datetime | None = None
    roll_back_to: int | None = None
    is_complete: bool = False


def consecutive_failures(endpoint: EndpointSnapshot) -> list[ReplicaSnapshot]:
    """Replicas of the current revision that have failed since the endpoint was last changed and
    since a replica was last stable, newest first."""
    failed = []
    for r in endpoint.replicas:
        if r.revision != endpoint.revision:
            continue
        if r.created_at < endpoint.changed_at:
            break
        if r.status is Status.RUNNING and not r.is_bad:
            break
        if r.status is not Status.ERROR or _is_node_failure(r):
            continue

        bad_since = r.unhealthy_since or r.status_since
        if r.ready_at is not None and (bad_since - r.ready_at).total_seconds() >= STABLE_S:
            break

        failed.append(r)

    return failed


def _is_node_failure(r: ReplicaSnapshot) -> bool:
    if r.reason is Reason.KERNEL_GONE:
        return r.ready_at is not None
    return r.reason in _NODE_FAILURES


def plan_replicas(endpoint: EndpointSnapshot, now: datetime) -> ReplicaPlan:
    """Plan the steps towards the endpoint's desired number of replicas in its current revision."""
    live = [
        r
        for r in endpoint.replicas
        if r.status not in TERMINAL and r.status is not Status.TERMINATING
    ]
    if endpoint.deleted:
        return ReplicaPlan(stop=_for(Reason.ENDPOINT_DELETED, live))

    failed = consecutive_failures(endpoint)
    if (
        not endpoint.proven
        and endpoint.fallback
        and len(failed) >= endpoint.spec.rollout.max_failures
    ):
        return ReplicaPlan(failures=len(failed), roll_back_to=endpoint.fallback)

    draining = [r for r in live if r.draining_since is not None]
    leaving = {r: reason for r in live if (reason := _why_replaced(endpoint, r, now))}
    if (returns := returning(endpoint, leaving, now)) is not None:
        leaving[returns] = Reason.PREFERRED_GROUP

    staying = [r for r in live if not (r in leaving or r.agent_silent or r.draining_since)]
    done, drain_ends = _drained(draining, endpoint.spec.rollout.drain_timeout_s, now)
    plan = _replace_gradually(endpoint, staying, leaving, now)

    # Replicas that are not ready stop first, then those with the fewest requests, then the
    # youngest.
    excess = sorted(staying, key=lambda r: (r.serves, r.in_flight or 0, -r.created_at.timestamp()))
    excess = excess[: max(0, len(staying) - endpoint.wanted)]
    why = Reason.SCALED_DOWN if endpoint.stopped_by is None else Reason.BUDGET_EXHAUSTED
    plan = replace(
        plan,
        # An unhealthy replica may recover, or may have streams that continue.
        stop=(*done, *plan.stop, *_for(why, (r for r in excess if r.status is not Status.RUNNING))),
        drain=(*plan.drain, *_for(why, (r for r in excess if r.status is Status.RUNNING))),
        failures=len(failed),
        look_at=earliest(plan.look_at, *drain_ends),
    )
    missing = endpoint.wanted - len(staying)
    if missing > 0:
        finished = {session_id for session_id, _ in done}
        plan = _add(
            endpoint,
            plan,
            missing=missing,
            draining=[r for r in draining if r.session_id not in finished],
            now=now,
        )

    ready = sum(r.serves for r in staying)
    others = any(r.revision != endpoint.revision for r in live)
    is_complete = not endpoint.proven and 0 < endpoint.wanted <= ready and not others
    return replace(plan, is_complete=is_complete)


def _why_replaced(endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime) -> Reason | None:
    """Why a live replica should be replaced, if so. A silent one is replaced as well, but not given
    up."""
    if r.draining_since is not None or r.agent_silent:
        return None

    # The job of an unreachable replica may be as healthy as before.
    is_kept = r.kept_until is not None and now < r.kept_until
    if r.status is Status.RUNNING and r.is_bad and not is_kept:
        return Reason.UNHEALTHY
    if r.agent_drained:
        return Reason.AGENT_DRAINED
    if r.revision != endpoint.revision:
        return Reason.REVISION_REPLACED

    tries_at = tries_next_at(endpoint, r, now)
    if tries_at is not None and now >= tries_at:
        return Reason.GROUP_FULL

    due_at = successor_due_at(endpoint, r, now)
    if due_at is None or now < due_at:
        return None

    return Reason.MAX_LIFETIME if r.walltime_s is None else Reason.WALLTIME


def _bad_since(r: ReplicaSnapshot) -> datetime | None:
    """Since when an unhealthy replica needs replacement; None if its agent does not report it as
    unhealthy."""
    if r.unhealthy_since is None or r.kept_until is None:
        return r.unhealthy_since
    return max(r.unhealthy_since, r.kept_until)


def _replace_gradually(
    endpoint: EndpointSnapshot,
    staying: Sequence[ReplicaSnapshot],
    leaving: dict[ReplicaSnapshot, Reason],
    now: datetime,
) -> ReplicaPlan:
    """Drain leaving replicas as far as others are ready, and stop those that serve no requests."""
    # A job whose successor is due while the job itself still waits will serve before that
    # successor.
    stop = [
        (r.session_id, reason)
        for r, reason in leaving.items()
        if r.status is not Status.RUNNING and reason is not Reason.WALLTIME
    ]
    drain: list[tuple[SessionId, Reason]] = []
    serving = sorted(
        (r for r in leaving if r.serves),
        key=lambda r: (
            _LEAVE_ORDER.index(leaving[r]),
            r.ends_at or _FAR,
            r.in_flight or 0,
            r.created_at,
        ),
    )
    last_moments: list[datetime | None] = []
    ready = min(sum(r.serves for r in staying), endpoint.wanted) + len(serving)
    for r in serving:
        spare = (
            endpoint.spec.rollout.max_unavailable if leaving[r] is Reason.REVISION_REPLACED else 0
        )
        at = drains_at(endpoint, r)
        if ready > endpoint.wanted - spare or (at is not None and now >= at):
            drain.append((r.session_id, leaving[r]))
            ready -= 1
        else:
            last_moments.append(at)

    look_at = earliest(*last_moments)
    look_at = earliest(look_at, *(successor_due_at(endpoint, r, now) for r in staying))
    look_at = earliest(look_at, *(tries_next_at(endpoint, r, now) for r in staying))
    look_at = earliest(look_at, *(returns_at(endpoint, r, now) for r in staying))
    look_at = earliest(look_at, *(_bad_since(r) for r in staying))
    for r, reason in leaving.items():
        if reason is not Reason.UNHEALTHY:
            continue

        # The proxies send requests to the last replica no matter which errors they have seen there.
        bad_since = _bad_since(r)
        until = None if bad_since is None else bad_since + timedelta(seconds=UNHEALTHY_S)
        if until is not None and now >= until:
            stop.append((r.session_id, reason))
        elif ready >= endpoint.wanted:
            drain.append((r.session_id, reason))
        else:
            look_at = earliest(look_at, until)

    return ReplicaPlan(stop=tuple(stop), drain=tuple(drain), look_at=look_at)


def _add(
    endpoint: EndpointSnapshot,
    plan: ReplicaPlan,
    missing: int,
    draining: Sequence[ReplicaSnapshot],
    *,
    now: datetime,
) -> ReplicaPlan:
    """Revive draining replicas, then start new ones: those that are missing, within ``max_surge``,
    and after the backoff."""
    fit = (r for r in draining if r.revision == endpoint.revision and r.drain_reason in BY_CHOICE)
    usable = [
        r for r in fit if r.status is Status.RUNNING and not r.agent_silent and not r.agent_drained
    ]
    revive = tuple(r.session_id for r in usable if not r.is_bad)[:missing]
    plan = replace(plan, revive=revive)
    missing = missing - len(revive)
    stopping = {session_id for session_id, _ in plan.stop}
    occupied = sum(
        r.session_id not in stopping and r.session_id not in revive and _by_choice(endpoint, r)
        for r in endpoint.replicas
    )
    room = missing + endpoint.spec.rollout.max_surge - occupied
    start = max(0, min(missing, room))
    if not plan.failures:
        return replace(plan, start=start)
    if plan.failures >= FAILURES_MAX:
        return plan

    wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (plan.failures - 1))
    retry_at = consecutive_failures(endpoint)[0].status_since + timedelta(seconds=wait_s)
    if now >= retry_at:
        return replace(plan, start=start, retry_at=retry_at)

    return replace(plan, retry_at=retry_at, look_at=earliest(plan.look_at, retry_at))


def _by_choice(endpoint: EndpointSnapshot, r: ReplicaSnapshot) -> bool:
    """Whether a replica exists in addition to those that stay, and need not be removed
    immediately."""
    if r.status is not Status.RUNNING or r.agent_silent or r.is_bad:
        return False
    if r.draining_since is not None:
        return r.drain_reason in BY_CHOICE
    return r.revision != endpoint.revision and not r.agent_drained


def _drained(
    draining: Iterable[ReplicaSnapshot], timeout_s: float, now: datetime
) -> tuple[tuple[tuple[SessionId, Reason], ...], list[datetime]]:
    """The draining replicas to stop, and when to check the others again even if nothing is
    reported."""
    done: list[tuple[SessionId, Reason]] = []
    looks: list[datetime] = []
    for r in draining:
        assert r.draining_since is not None
        settled = r.draining_since + timedelta(seconds=min(SETTLE_S, timeout_s))
        end = r.draining_since + timedelta(seconds=timeout_s)

        if r.in_flight is not None:
            is_idle = not r.in_flight and r.is_confirmed
        else:
            is_idle = now >= settled and not (r.load and r.load.running + r.load.waiting)

        if is_idle or r.status is not Status.RUNNING or now >= end:
            done.append((r.session_id, r.drain_reason))
        else:
            looks.append(settled if r.in_flight is None and now < settled else end)

    return tuple(done), looks


def _for(
    reason: Reason, replicas: Iterable[ReplicaSnapshot]
) -> tuple[tuple[SessionId, Reason], ...]:
    return tuple((r.session_id, reason) for r in replicas)


def earliest(*moments: datetime | None) -> datetime | None:
    """The earliest time, or None if there is none."""
    return min((at for at in moments if at is not None), default=None)
