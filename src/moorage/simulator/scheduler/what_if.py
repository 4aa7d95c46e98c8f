"""Changes to a recorded trace for what-if questions: more agents, other quotas. Pure.

Other policies need no change: ``simulate`` accepts a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import AgentId
from moorage.manager.scheduling import AgentState
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX
from moorage.manager.scheduling.core.model import Quota
from moorage.simulator.scheduler.trace import Trace, without_load

_PREFIX = "added"


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Limits to set or, if None, to remove; all others stay as recorded. Amounts are in base
    units."""

    scope: Literal["user", "project", "group"]
    name: str
    limits: Mapping[str, int | None] = field(default_factory=dict)
    sessions: int | None = None
    changes_sessions: bool = False


def model_agent(trace: Trace, like: str | None) -> AgentState:
    """The recorded agent named ``like``, or by default the one with the most of the trace's slot.
    Raises ``InvalidInput``."""
    agents = {agent.agent_id: agent for _, agent in trace.agents}
    if like is not None and AgentId(like) not in agents:
        names = ", ".join(sorted(agents)[:10])
        raise InvalidInput(
            f"--like {like!r} is not a recorded agent", next_step=f"use one of: {names}"
        )

    if like is not None:
        return agents[AgentId(like)]

    return max(
        agents.values(),
        key=lambda agent: (agent.packed.capacity.get(trace.slot, 0), agent.agent_id),
    )


def with_agents(trace: Trace, model: AgentState, count: int) -> Trace:
    """The trace with ``count`` more agents like ``model`` from the start."""
    return _with(trace, [model] * count)


def with_devices(trace: Trace, model: AgentState, count: int) -> Trace:
    """The trace with ``count`` more devices of its family, on additional agents like ``model``; the
    last agent may have fewer. Raises ``InvalidInput`` if ``model`` has none."""
    slot = trace.slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX
    devices = [device for device in model.devices if device.slot == slot]
    if not devices:
        raise InvalidInput(
            f"agent {model.agent_id} has no {slot}", next_step="name one that has it with --like"
        )

    added = [model] * (count // len(devices))
    if rest := count % len(devices):
        others = tuple(device for device in model.devices if device.slot != slot)
        added.append(replace(model, devices=(*devices[:rest], *others)))

    return _with(trace, added)


def _with(trace: Trace, added: list[AgentState]) -> Trace:
    known = len({agent.agent_id for _, agent in trace.agents if agent.agent_id.startswith(_PREFIX)})
    new = tuple(
        (
            trace.begin,
            replace(
                without_load(agent),
                agent_id=AgentId(f"{_PREFIX}-{number}"),
                available=True,
                draining=False,
                fenced=False,
                devices=tuple(
                    replace(device, free=device.capacity, healthy=True) for device in agent.devices
                ),
            ),
        )
        for number, agent in enumerate(added, known + 1)
    )
    return replace(trace, agents=(*new, *trace.agents))


def with_quotas(trace: Trace, changes: list[QuotaChange]) -> Trace:
    """The trace with these limits from the start."""
    recorded = trace.quotas or ((trace.begin, ()),)
    changed = []
    for at, quotas in recorded:
        by_name = {(quota.scope, quota.name): quota for quota in quotas}
        for change in changes:
            name = change.scope, change.name
            by_name[name] = _changed(by_name.get(name) or Quota(change.scope, change.name), change)

        changed.append((at, tuple(by_name.values())))

    return replace(trace, quotas=tuple(changed))


def _changed(quota: Quota, change: QuotaChange) -> Quota:
    limits = {slot: limit for slot, limit in quota.limits.items() if slot not in change.limits}
    limits |= {slot: limit for slot, limit in change.limits.items() if limit is not None}
    sessions = change.sessions if change.changes_sessions else quota.sessions
    return replace(quota, limits=limits, sessions=sessions)
