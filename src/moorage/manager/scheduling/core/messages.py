"""Messages for people about refusals and unmet predicates."""

from __future__ import annotations

from moorage.common.model.slots import format_amount
from moorage.manager.scheduling.core.results import Refusal, RefusalKind, UnmetCondition, UnmetKind

_FIXED = {
    RefusalKind.UNAVAILABLE: "silent or draining: no new work",
    RefusalKind.DRAINING: "cordoned or draining: no new work",
    RefusalKind.FENCED: "fenced until it is back: work that was given up may still use its devices",
    RefusalKind.DESIGNATED: "not one of the agents that were named",
    RefusalKind.SHARES: "gives parts of its devices in other steps, or none",
    RefusalKind.AVOIDED: "avoided: an earlier start of this session failed there",
}


def refusal_message(refusal: Refusal) -> str:
    """One line, like "3 agents: needs 2 cuda.device, at most 1 free"."""
    kind, slot = refusal.kind, refusal.slot
    several = refusal.agents != 1
    agents = f"{refusal.agents} agents" if several else "1 agent"
    if kind is RefusalKind.NO_ELIGIBLE_AGENT:
        return "the resource group has no agent"
    if kind in (RefusalKind.CAPACITY, RefusalKind.NEVER):
        most = "at most " if several else ""
        asked, had = format_amount(slot, refusal.requested), format_amount(slot, refusal.available)
        rest = f"{most}{had} free" if kind is RefusalKind.CAPACITY else f"has {most}{had} even when empty"
        return f"{agents}: needs {asked} {slot}, {rest}"
    texts = {
        RefusalKind.RUNTIME: f"has no runtime {slot}",
        RefusalKind.ENGINE: f"has no engine {slot}; install it there (`moorage doctor`)",
        RefusalKind.ARCH: f"is not {slot}",
        RefusalKind.LABELS: f"has no label {slot}",
        RefusalKind.KERNELS: f"runs as many kernels as it may ({refusal.available})",
        RefusalKind.RESERVED: f"its room is kept for session {slot}",
        RefusalKind.TOGETHER: (
            f"has room for some of the {refusal.requested} kernels, but not for all at once"
        ),
        RefusalKind.SELECTOR: slot,
    }
    return f"{agents}: {texts.get(kind) or _FIXED[kind]}"


def unmet_message(unmet: UnmetCondition) -> str:
    """One line, like "user ann: cuda.device: used 7 + requested 4 > limit 10 (over by 1)".

    Times are left out: the caller formats ``UnmetCondition.until``.
    """
    names = ", ".join(unmet.names)
    kind = unmet.kind
    if kind is UnmetKind.QUOTA:
        used, asked, limit, over = (
            format_amount(unmet.slot, amount)
            for amount in (
                unmet.used,
                unmet.requested,
                unmet.limit,
                unmet.used + unmet.requested - unmet.limit,
            )
        )
        if not unmet.slot:
            return f"{unmet.scope} {unmet.name}: {unmet.used} concurrent sessions of {unmet.limit}"
        return (
            f"{unmet.scope} {unmet.name}: {unmet.slot}: used {used} + requested {asked} > limit {limit} "
            f"(over by {over})"
        )
    texts = {
        UnmetKind.DEPENDENCY: f"waits for {names or 'other sessions'}",
        UnmetKind.DEPENDENCY_FAILED: f"ended otherwise than needed: {names or 'a dependency'}",
        UnmetKind.NOT_BEFORE: "its pause before the next try is not over",
        UnmetKind.STARTS_AT: "it was asked to start later",
        UnmetKind.SESSION_TYPE: f"sessions of type {unmet.name} are not allowed here: {names}",
        UnmetKind.EXCLUSIVE: f"asks for {names}, of which a session may have one only",
    }
    return texts[kind]
