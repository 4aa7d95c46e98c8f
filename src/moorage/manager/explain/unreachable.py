"""Explanation of sessions with unreachable kernels: what they wait for, and the remedy. Pure."""

from __future__ import annotations

from moorage.common.model.spec import LEASE_S
from moorage.common.model.status import Status
from moorage.common.views.resources import SessionView


def explain_unreachable(session: SessionView) -> str:
    """Explain which kernels are unreachable, or return "" if every kernel of the session is
    reachable or has ended."""
    silent = {k.agent_id or "": k.unreachable_since for k in session.kernels if k.unreachable_since}
    if not silent:
        return ""

    agents = ", ".join(
        f"{agent} (last report {at:%Y-%m-%d %H:%M} UTC)" for agent, at in silent.items()
    )
    cure = "; ".join(f"`moorage agents forget {agent} --destroyed`" for agent in silent)
    return (
        f"its program may still run on {agents}, which does not report; {_waits_for(session)}; if "
        "that node "
        f"is gone for good: {cure}"
    )


def _waits_for(session: SessionView) -> str:
    if session.status is Status.TERMINATING:
        return "the stop completes once the program is known to have ended"

    if session.spec.lost_agent_policy == "requeue":
        lease_s = session.spec.lease_s or LEASE_S
        return (
            f"it runs again once its lease of {lease_s:g} s has ended it (on_lost_agent: requeue)"
        )

    if session.spec.lost_agent_policy == "wait":
        return "it waits for the agent (on_lost_agent: wait)"

    return "it ends when the agent returns"
