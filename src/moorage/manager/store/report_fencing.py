"""Who may speak for an agent: the words for who may not. Pure; ``agent_upsert.sql`` decides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.common.link.messages import Report
from moorage.common.model.errors import Conflict
from moorage.common.model.ids import AgentId


class ReportRefused(Conflict):
    """A newer stream speaks for this agent.

    ``passing``: the same process has attached anew, and nobody needs to be told. Otherwise another one speaks
    for the agent, or it is another agent under the same id: to come again soon would change nothing.
    """

    def __init__(self, message: str, *, next_step: str = "", passing: bool = False) -> None:
        super().__init__(message, next_step=next_step)
        self.passing = passing

    @classmethod
    def by_its_newer_stream(cls, agent_id: AgentId) -> ReportRefused:
        return cls(f"agent {agent_id!r} speaks through a newer stream now", passing=True)

    @classmethod
    def by_another_process(cls, agent_id: AgentId) -> ReportRefused:
        return cls(
            f"another process speaks for agent {agent_id!r} now, and has replaced this one",
            next_step="if both are meant to run, give each an agent.id of its own",
        )


def why_refused(report: Report, known: Mapping[str, Any]) -> ReportRefused:
    """``known``: the agent's identity, incarnation and address as stored when its report was refused; None
    each where it became known just then."""
    info = report.info
    if info.identity and known["old_identity"] not in (None, "", info.identity):
        return ReportRefused(
            f"agent {info.agent_id!r} was heard not long ago, at {known['old_address']}: this one, at "
            f"{info.address}, has another state directory, so it is another agent",
            next_step="if both are meant to run, give this one another agent.id; if the node was "
            f"reinstalled, run `moorage agents forget {info.agent_id}`, or wait until it is LOST",
        )
    if known["old_incarnation"] in (None, report.incarnation):
        return ReportRefused.by_its_newer_stream(info.agent_id)
    return ReportRefused.by_another_process(info.agent_id)
