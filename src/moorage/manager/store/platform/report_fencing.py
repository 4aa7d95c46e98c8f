"""Refusal of reports from streams that do not represent their agent. ``agent_upsert.sql`` decides
which streams do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.common.model.errors import Conflict
from moorage.common.model.ids import AgentId
from moorage.manager.lifecycle.kernels import AgentUpdate


class ReportRefused(Conflict):
    """A newer stream represents this agent.

    ``passing``: the same process has reconnected, so there is nothing to report. Otherwise another
    process represents the agent, or another agent uses the same id, and reconnecting would not
    help.
    """

    def __init__(self, message: str, *, next_step: str = "", passing: bool = False) -> None:
        super().__init__(message, next_step=next_step)
        self.passing = passing

    @classmethod
    def by_its_newer_stream(cls, agent_id: AgentId) -> ReportRefused:
        return cls(f"agent {agent_id!r} has a newer stream now", passing=True)

    @classmethod
    def by_another_process(cls, agent_id: AgentId) -> ReportRefused:
        return cls(
            f"another process now represents agent {agent_id!r} and has replaced this one",
            next_step="if both are meant to run, give each a different agent.id",
        )


def refusal_of(update: AgentUpdate, known: Mapping[str, Any]) -> ReportRefused:
    """Reason for a refusal. ``known``: the agent's identity, incarnation and address as stored when
    its report was refused; each is None if the agent was first stored only at that moment."""
    info = update.info
    if info.identity and known["old_identity"] not in (None, "", info.identity):
        return ReportRefused(
            f"agent {info.agent_id!r} reported recently from {known['old_address']}; this one, at "
            f"{info.address}, has a different state directory, so it is a different agent",
            next_step=(
                "if both are meant to run, give this one a different agent.id; if the node was "
                "reinstalled, wait until the known agent is LOST and its kernels have ended, or "
                f"run `moorage agents forget {info.agent_id} --destroyed`"
            ),
        )

    if known["old_incarnation"] in (None, update.incarnation):
        return ReportRefused.by_its_newer_stream(info.agent_id)

    return ReportRefused.by_another_process(info.agent_id)
