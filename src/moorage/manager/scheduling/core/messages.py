"""Human-readable messages about refusals and unmet start conditions."""

from __future__ import annotations

from datetime import UTC, datetime

from moorage.common.model.slots import format_amount
from moorage.manager.scheduling.core.results import Refusal, RefusalKind, UnmetCondition, UnmetKind
from moorage.manager.scheduling.core.shape import SYSTEM_SESSIONS

_FIXED = {
    RefusalKind.ISOLATION: (
        "cannot isolate members' processes (run `moorage agent doctor` there to see why)"
    ),
    RefusalKind.UNAVAILABLE: "silent, disconnected or not ready",
    RefusalKind.DRAINING: "cordoned or draining: accepts no new work",
    RefusalKind.FENCED: "fenced until it reports again: abandoned work may still use its devices",
    RefusalKind.DIALS_OUT: (
        "only dials out, so it cannot join clusters that span agents: use cluster mode "
        "single-node, or make agent.address reachable for proxies (`moorage agents describe` "
        "shows why they do not reach it)"
    ),
    RefusalKind.DESIGNATED: "not one of the designated agents",
    RefusalKind.SHARES: "cannot split its devices into the requested fractions",
    RefusalKind.AVOIDED: "avoided: an earlier start of this session failed there",
}


def format_node_hours(seconds: int) -> str:
    """Format with at most two decimals, without trailing zeros."""
    return f"{seconds / 3600:.2f}".rstrip("0").rstrip(".")


def _day(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y-%m-%d}"


def refusal_message(refusal: Refusal) -> str:
    """Format a refusal as one line, like "3 agents: needs 2 cuda.device, at most 1 free"."""
    kind = refusal.kind
    slot = refusal.slot
    several = refusal.agents != 1
    agents = f"{refusal.agents} agents" if several else "1 agent"
    if kind is RefusalKind.NO_ELIGIBLE_AGENT:
        return "the resource group has no agent"

    if kind in (RefusalKind.CAPACITY, RefusalKind.UNHEALTHY, RefusalKind.NEVER):
        most = "at most " if several else ""
        requested = format_amount(slot, refusal.requested)
        available = format_amount(slot, refusal.available)
        rest = {
            RefusalKind.CAPACITY: f"{most}{available} free",
            RefusalKind.UNHEALTHY: f"has {most}{available} without its unhealthy devices",
            RefusalKind.NEVER: f"has {most}{available} even when empty",
        }[kind]

        return f"{agents}: needs {requested} {slot}, {rest}"

    texts = {
        RefusalKind.RUNTIME: f"has no runtime {slot}",
        RefusalKind.ENGINE: f"has no engine {slot}; install it there (`moorage doctor`)",
        RefusalKind.ARCH: f"is not {slot}",
        RefusalKind.LABELS: f"has no label {slot}",
        RefusalKind.KERNELS: f"runs its maximum of {refusal.available} kernels",
        RefusalKind.RESERVED: f"its free capacity is reserved for session {slot}",
        RefusalKind.TOGETHER: (
            f"some of the {refusal.requested} kernels fit, but not all of them together"
        ),
        RefusalKind.SELECTOR: slot,
    }
    return f"{agents}: {texts.get(kind) or _FIXED[kind]}"


def _never(unmet: UnmetCondition) -> str:
    """A note about a request that exceeds the whole limit, however little of it is used."""
    return "; it never starts under this limit" if unmet.requested > unmet.limit else ""


def unmet_message(unmet: UnmetCondition) -> str:
    """Format an unmet condition as one line, like "user ann: cuda.device: used 7 + requested 4 >
    limit 10 (over by 1)".

    Times are omitted: the caller formats ``UnmetCondition.until``.
    """
    names = ", ".join(unmet.names)
    kind = unmet.kind
    if kind is UnmetKind.QUOTA:
        whose = f"{unmet.scope} {unmet.name}"
        if unmet.scope == "group-user":
            whose = f"user {unmet.name} in this resource group"
        if unmet.scope == "qos":
            whose = f"QoS {unmet.name}"
        if unmet.scope == "qos-user":
            qos, _, user = unmet.name.partition(":")
            whose = f"user {user} in QoS {qos}"

        used, asked, limit, over = (
            format_amount(unmet.slot, amount)
            for amount in (
                unmet.used,
                unmet.requested,
                unmet.limit,
                unmet.used + unmet.requested - unmet.limit,
            )
        )
        if unmet.slot == SYSTEM_SESSIONS:
            what = f"{unmet.used} system sessions of {unmet.limit}"
            return f"{whose}: {what}{_never(unmet)}"
        if not unmet.slot:
            what = f"{unmet.used} concurrent sessions of {unmet.limit}"
            return f"{whose}: {what}{_never(unmet)}"

        return (
            f"{whose}: {unmet.slot}: used {used} + requested {asked} > limit "
            f"{limit} "
            f"(over by {over}){_never(unmet)}"
        )

    if kind is UnmetKind.NODE_HOURS:
        used, asked, limit = (
            format_node_hours(n) for n in (unmet.used, unmet.requested, unmet.limit)
        )
        reset = _never(unmet) or f" (resets {_day(unmet.until)} UTC)"
        return (
            f"{unmet.scope} {unmet.name}: node-hours: used and reserved {used} + at most {asked} "
            f"> limit {limit} a month{reset}"
        )

    if kind is UnmetKind.EARLIER_ATTEMPT:
        cure = "; ".join(f"`moorage agents forget {agent} --destroyed`" for agent in unmet.names)
        return (
            f"an earlier attempt may still be running on {names}; if that node is gone for good: "
            f"{cure}"
        )

    texts = {
        UnmetKind.DEPENDENCY: f"waits for {names or 'its turn in its array'}",
        UnmetKind.DEPENDENCY_FAILED: f"a dependency has the wrong outcome: {names or 'unknown'}",
        UnmetKind.NOT_BEFORE: "its retry backoff has not ended",
        UnmetKind.STARTS_AT: "its start time is in the future",
        UnmetKind.SESSION_TYPE: f"sessions of type {unmet.name} are not allowed here: {names}",
        UnmetKind.EXCLUSIVE: f"requests {names}, but a session may request only one of them",
    }
    return texts[kind]
