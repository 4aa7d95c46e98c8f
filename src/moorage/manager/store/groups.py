"""Resource groups in Postgres: how each schedules, as options for people and as a policy for the planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from moorage.common.model.errors import MoorageError, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.ids import AgentId
from moorage.common.views import resources
from moorage.manager.scheduling import Policy
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL

log = structlog.get_logger("moorage.store.groups")


class Groups:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db, self._notifier = db, notifier
        self._group_line, self._pass_line = db.line(), db.line()
        self.limited = True  # whether there is any quota, as far as the last look says

    async def list_groups(self) -> list[resources.GroupView]:
        return [_view(row) for row in await self._db.fetch(SQL["group_list"], None)]

    async def get_group(self, name: str) -> resources.GroupView:
        """Raises ``NotFound``."""
        row = await self._db.fetchrow(SQL["group_list"], name)
        if row is None:
            raise NotFound(f"no resource group {name!r}", next_step="`moorage groups` lists them")
        return _view(row)

    async def put_group(self, name: str, options: GroupOptions, *, actor: str) -> resources.GroupView:
        """Create it or change its options; takes effect with the next pass."""
        await self._group_line.fetch(SQL["group_put"], name, options.model_dump(mode="json"))
        self._notifier.notify([Topic.PENDING])
        return await self.get_group(name)

    async def groups_with_pending(self) -> list[tuple[str, Policy]]:
        """Those in which something waits that is not known to wait for a time."""
        found = await self._pass_line.fetch(SQL["groups_pending"])
        self.limited = any(row["limited"] for row in found)
        return [(row["name"], policy) for row in found if (policy := _policy_in(row)) is not None]

    async def cursors(self, group: str) -> dict[str, AgentId]:
        """round-robin: the agent chosen last, by architecture as asked for."""
        row = await self._db.fetchrow(SQL["group_cursors"], group)
        return {arch: AgentId(agent) for arch, agent in row["cursors"].items()} if row else {}

    async def keep_cursors(self, group: str, cursors: Mapping[str, AgentId], term: int) -> None:
        """Those that moved; nothing is written for a leader that is none any more."""
        if cursors:
            await self._group_line.fetch(SQL["group_cursors_put"], group, dict(cursors), term)


def policy_of(options: GroupOptions) -> Policy:
    """The same for the planner. Raises ``InvalidInput`` where it allows less."""
    age, preemption = options.max_skip_age_s, options.preemption
    return Policy(
        hol=options.hol,
        num_retries_to_skip=options.num_retries_to_skip,
        agent_selection=options.agent_selection,
        strategy=options.strategy,
        max_bypasses=options.max_bypasses,
        max_skip_age=None if age is None else round(age * 1_000_000),
        replicas=options.replicas,
        fraction=options.fraction,
        share_by=options.share_by,
        weights=options.weights,
        session_types=None if options.session_types is None else frozenset(options.session_types),
        slot_priority=tuple(options.slot_priority),
        exclusive=tuple(frozenset(families) for families in options.exclusive),
        preemption=None
        if preemption is None
        else Preemption(
            how=preemption.how,
            order=preemption.order,
            min_runtime=round(preemption.min_runtime_s * 1_000_000),
        ),
    )


def options_of(policy: Policy) -> GroupOptions:
    """The same for people; ``policy_of`` gives it back."""
    age, preemption = policy.max_skip_age, policy.preemption
    return GroupOptions.model_validate(
        {
            "hol": policy.hol,
            "num_retries_to_skip": policy.num_retries_to_skip,
            "agent_selection": policy.agent_selection,
            "strategy": policy.strategy,
            "max_bypasses": policy.max_bypasses,
            "max_skip_age_s": None if age is None else age / 1_000_000,
            "replicas": policy.replicas,
            "fraction": policy.fraction,
            "share_by": policy.share_by,
            "weights": dict(policy.weights),
            "session_types": None if policy.session_types is None else sorted(policy.session_types),
            "slot_priority": list(policy.slot_priority),
            "exclusive": [sorted(families) for families in policy.exclusive],
            "preemption": None
            if preemption is None
            else {
                "how": preemption.how,
                "order": preemption.order,
                "min_runtime_s": preemption.min_runtime / 1_000_000,
            },
        }
    )


def _policy_in(row: Any) -> Policy | None:
    """None for a group whose options a newer manager wrote: to plan by half of them would be wrong, and the
    other groups must not wait for it."""
    try:
        return policy_of(GroupOptions(**row["options"]))
    except (ValidationError, MoorageError) as error:
        log.error(
            "a resource group is not planned: its options are not known", group=row["name"], why=str(error)
        )
        return None


def _view(row: Any) -> resources.GroupView:
    return resources.GroupView.model_validate(dict(row))
