"""Refusals and holds in words for people."""

from __future__ import annotations

from fairlead.common.slots import show_amount
from fairlead.manager.scheduling.answer import Refusal, RefusalKind


def explain(refusal: Refusal) -> str:
    """One line, like "3 agents: needs 2 cuda.device, at most 1 free"."""
    agents = "1 agent" if refusal.agents == 1 else f"{refusal.agents} agents"
    several = refusal.agents != 1
    asked = f"needs {show_amount(refusal.slot, refusal.asked)} {refusal.slot}"
    had = show_amount(refusal.slot, refusal.had)
    words = {
        RefusalKind.UNAVAILABLE: "silent or draining: no new work",
        RefusalKind.RUNTIME: f"has no runtime {refusal.slot}",
        RefusalKind.ENGINE: f"has no engine {refusal.slot}; install it there (`fairlead doctor`)",
        RefusalKind.AVOIDED: "avoided: an earlier start of this session failed there",
        RefusalKind.CAPACITY: f"{asked}, {'at most ' if several else ''}{had} free",
        RefusalKind.NEVER: f"{asked}, has {'at most ' if several else ''}{had} even when empty",
    }
    if refusal.kind is RefusalKind.NO_AGENT:
        return "the resource group has no agent"
    return f"{agents}: {words[refusal.kind]}"
