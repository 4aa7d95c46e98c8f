"""Resource groups in Postgres, and the mapping between their options and the planner's policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from sqlalchemy import Boolean, Text

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, MoorageError, NotFound
from moorage.common.model.group_options import GroupOptions, PreemptionOptions, PriorityCeilings
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.ids import AgentId
from moorage.common.model.newer_values import NEEDS
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.runtimes import offered_runtimes
from moorage.common.model.status import SessionType
from moorage.common.views import resources
from moorage.manager.scheduling.core.policy import Policy, Preemption
from moorage.manager.serving.snapshots import StartHistory
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import (
    UnreadableRows,
    needs_newer,
    read_one,
    read_page,
)
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.database.windows import STARTS
from moorage.manager.store.schema.base import TIME

# A manager learns of changes immediately; this interval covers lost notifications.
SITES_CACHED_S = 5.0
# Options that the previous release does not know. They are stored only if they are set.
_NEW_OPTIONS = (
    *("images", "mounts", "hpc", "description", "projects", "users", "reuse", "idle"),
    "max_priority",
)

_NO_LIMITS = GroupLimits()
# In the order of the parameters of group_put.sql.
_LIMITS = (
    *("max_batch_time_s", "default_batch_time_s"),
    *("max_interactive_time_s", "default_interactive_time_s"),
    *("max_per_session", "max_per_user"),
    *("max_running_per_user", "max_pending_per_user"),
)

_LISTING = Listing(
    SQL["group_list"],
    {"name": Text(), "is_retired": Boolean(), "changed_at": TIME},
    sorts=("name", "changed_at"),
    key=("name",),
    default="name",
)


class GroupStore:
    """``has_quotas``: whether any quota existed at the last call of ``with_pending``."""

    def __init__(
        self, db: Database, notifier: Notifier, clock: Clock, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._unreadable = unreadable
        self._write_connection = db.shared_connection(Purpose.ADMINISTRATION)
        self._pass_connection = db.dedicated_connection()
        self.has_quotas = True
        self._sites: dict[str, HpcOptions] = {}
        self._with_site: set[str] = set()
        self._reuse: dict[str, ReusePolicy] = {}
        self._project_reuse: dict[str, ReusePolicy] = {}
        self._ceilings: dict[str, PriorityCeilings] = {}
        self._limits: dict[str, GroupLimits] = {}
        self._sites_until = 0.0
        notifier.on_groups(self._forget_sites)

    def _forget_sites(self, _: object) -> None:
        self._sites_until = 0.0

    async def site(self, name: str) -> HpcOptions | None:
        """The site of a resource group of kind hpc; None for a group of another kind, or an unknown
        one. Cached, because creating a session always needs it. Raises ``Conflict`` for a site that
        this release does not know, because this release then cannot determine what runs there."""
        await self._refresh()
        if name in self._with_site and name not in self._sites:
            raise needs_newer("resource group", name, f"{NEEDS} to describe its site")
        return self._sites.get(name)

    async def reuse(self, name: str, project: str) -> ReusePolicy:
        """The reuse setting for batch sessions that do not specify one: their project's, otherwise
        their resource group's. Cached."""
        await self._refresh()
        return self._project_reuse.get(project) or self._reuse.get(name, "never")

    async def ceilings(self, name: str) -> PriorityCeilings:
        """Priority ceilings of new workloads in a group. Cached."""
        await self._refresh()
        return self._ceilings.get(name, PriorityCeilings())

    async def limits(self, name: str) -> GroupLimits:
        """Limits of a group, which may be named by an alias. Cached."""
        await self._refresh()
        return self._limits.get(name, _NO_LIMITS)

    async def pending_of(self, user: str) -> dict[str, int]:
        """How many pending sessions a user has in each resource group."""
        rows = await self._db.fetch(SQL["group_pending_of"], user)
        return {row["resource_group"]: row["n"] for row in rows}

    async def highest_ceilings(self) -> PriorityCeilings:
        """The highest ceilings by role: those of the group that allows the most. Cached."""
        await self._refresh()
        every = [PriorityCeilings(), *self._ceilings.values()]
        fields = PriorityCeilings.model_fields
        return PriorityCeilings(
            **{field: max(getattr(ceilings, field) for ceilings in every) for field in fields}
        )

    async def _refresh(self) -> None:
        if self._clock.monotonic() >= self._sites_until:
            until = self._clock.monotonic() + SITES_CACHED_S
            rows = await self._db.fetch(SQL["group_sites"])
            sites = [row for row in rows if row["hpc"]]
            self._sites = dict(self._unreadable.each("resource group", sites, _site, key="name"))
            self._with_site = {row["name"] for row in sites}
            limited = [row for row in rows if row["max_priority"]]
            self._ceilings = dict(
                self._unreadable.each("resource group", limited, _ceilings, key="name")
            )
            limited = [row for row in rows if row["limits"]]
            self._limits = dict(
                self._unreadable.each("resource group", limited, _limits, key="name")
            )
            rows = [row for row in rows if row["reuse"] in get_args(ReusePolicy)]
            self._project_reuse = {row["name"]: row["reuse"] for row in rows if row["project"]}
            self._reuse = {row["name"]: row["reuse"] for row in rows if not row["project"]}
            self._sites_until = until

    async def all(self) -> list[resources.GroupView]:
        rows = await self._db.fetch(SQL["group_list"], None)
        return self._unreadable.each("resource group", rows, _view, key="name")

    async def page(
        self,
        paging: Paging = FIRST,
        *,
        names: Collection[str] | None = None,
        closed: Collection[str] = (),
        retired: bool | None = None,
    ) -> resources.Page[resources.GroupView]:
        """Page of the groups in ``names`` (None means any) except the ``closed`` ones. ``retired``:
        True selects only retired groups, False only others."""
        only = {"name": names, "is_retired": retired}
        rows, following = await _LISTING.page(
            self._db, paging, None, only=only, without={"name": closed}
        )
        return read_page(
            resources.GroupView, "resource group", rows=rows, read=_view, following=following
        )

    async def get(self, name: str) -> resources.GroupView:
        """Get a group. Raises ``NotFound``."""
        row = await self._db.fetchrow(SQL["group_list"], name)
        if row is None:
            raise NotFound(f"no resource group {name!r}", next_step="`moorage groups` lists them")
        return read_one("resource group", name, row, _view)

    async def start_times(self, name: str) -> resources.StartTimes | None:
        """Start times of the latest jobs at the group's site; None if none has become ready, or the
        group is not of kind hpc."""
        rows = await self._db.fetch(SQL["start_history"], [None], [name], STARTS)
        if not rows:
            return None
        return StartHistory(**{field: rows[0][field] for field in StartHistory.__slots__}).view(
            name
        )

    async def site_nodes(self, name: str) -> list[resources.SiteNodesView]:
        """The nodes of the group's sites; empty if there are none, or they are unknown."""
        rows = await self._db.fetch(SQL["site_nodes"], name)
        return [resources.SiteNodesView.model_validate(dict(row)) for row in rows]

    async def put(
        self,
        name: str,
        options: GroupOptions,
        *,
        actor: str,
        if_match: Versions = None,
        create: bool = False,
    ) -> resources.GroupView:
        """Replace the options of a group, or create it. ``create``: only create it, or restore a
        retired one. ``if_match``: the versions that it may have now. The change takes effect with
        the next scheduling pass.

        Raises ``PreconditionFailed`` for another version, and ``Conflict`` for a retired group, for
        an existing one with ``create``, and for a change of kind while the group is in use.
        """
        await self._check_kind(name, options)

        # A manager of the previous release skips a group whose options have an unknown field.
        new: dict[str, Any] = {
            f: True for f in _NEW_OPTIONS if getattr(options, f) in (None, "", "never")
        }
        if options.hpc is not None and options.hpc.queue_timeout_s is None:
            # In that release, the option is a number with its own default.
            new["hpc"] = {"queue_timeout_s"}

        if (preemption := options.preemption) is not None:
            defaults = PreemptionOptions()
            later = ("among", "max_grace_s")
            new["preemption"] = {f for f in later if getattr(preemption, f) == getattr(defaults, f)}

        # Columns of their own table, which managers of the previous release leave as they are.
        new["limits"] = True
        limits = options.limits or _NO_LIMITS
        columns = [getattr(limits, column) for column in _LIMITS]

        stored = options.model_dump(mode="json", exclude=new)
        args = (name, stored, sent(if_match), actor, create, limits != _NO_LIMITS, *columns)
        if not await self._write_connection.fetch(SQL["group_put"], *args):
            raise await self._refused(name, if_match, create)

        self._notifier.notify_group(name)
        return await self.get(name)

    async def _check_kind(self, name: str, options: GroupOptions) -> None:
        row = await self._db.fetchrow(SQL["group_list"], name)
        before = None if row is None else read_one("resource group", name, row, _view)
        if before is None or (before.options.hpc is None) is (options.hpc is None):
            return

        if before.agents or before.pending or before.running:
            raise Conflict(
                f"resource group {name!r} has agents or sessions, so its kind cannot change",
                next_step="create another group, or stop its sessions and its agents first",
            )

    async def retire(
        self, name: str, *, actor: str, if_match: Versions = None, drain: bool = False
    ) -> resources.GroupView:
        """Retire a group, so that nothing new can be created in it.

        ``drain``: retire it even while it has sessions, endpoints or agents, which stay. Raises
        ``NotFound``, ``PreconditionFailed`` and ``Conflict``."""
        await self.get(name)
        [row] = await self._write_connection.fetch(
            SQL["group_retire"], name, sent(if_match), actor, drain
        )
        if not row["retired"]:
            live = [
                f"{row[kind]} {kind}" for kind in ("sessions", "endpoints", "agents") if row[kind]
            ]
            error = await self._refused(name, if_match, False)
            if live and isinstance(error, Conflict) and (await self.get(name)).retired_at is None:
                raise Conflict(
                    f"resource group {name!r} has {', '.join(live)}",
                    next_step="drain it: `moorage groups delete NAME --drain`, or ?drain=true",
                )

            raise error

        self._notifier.notify_group(name)
        return await self.get(name)

    async def _refused(self, name: str, if_match: Versions, create: bool) -> MoorageError:
        """Explain why a write changed nothing. Raises ``PreconditionFailed`` for a different
        version."""
        row = await self._db.fetchrow(SQL["group_list"], name)
        check_version(f"resource group {name!r}", None if row is None else row["version"], if_match)

        if create:
            if (owner := (await self.get(name)).name) != name:
                return Conflict(
                    f"{name!r} is an alias of resource group {owner!r}",
                    next_step=(
                        f"choose another name, or release this one: `moorage groups forget {name}`"
                    ),
                )

            return Conflict(
                f"there is a resource group {name!r}", next_step="choose another name, or edit it"
            )

        return Conflict(
            f"resource group {name!r} is retired",
            next_step=f"restore it: `moorage groups create {name}`",
        )

    async def with_pending(self) -> list[tuple[str, Policy]]:
        """Groups with pending sessions whose begin time and backoff have passed."""
        rows = await self._pass_connection.fetch(SQL["groups_pending"])
        self.has_quotas = any(row["has_quotas"] for row in rows)
        return self._unreadable.each("resource group", rows, _policy, key="name")

    async def cursors(self, group: str) -> dict[str, AgentId]:
        """The agents that round-robin chose last, by requested architecture."""
        row = await self._db.fetchrow(SQL["group_cursors"], group)
        return {arch: AgentId(agent) for arch, agent in row["cursors"].items()} if row else {}

    async def save_cursors(self, group: str, cursors: Mapping[str, AgentId], term: int) -> None:
        """Save changed cursors. Writes nothing if ``term`` is no longer the leader's term."""
        if cursors:
            await self._pass_connection.fetch(SQL["group_cursors_put"], group, dict(cursors), term)


def _restricted(types: Collection[SessionType] | None) -> frozenset[str] | None:
    """Types allowed by a restriction; None means all. System sessions that no group names are
    refused when they are created."""
    return None if types is None or set(SessionType) <= set(types) else frozenset(types)


def policy_of(options: GroupOptions) -> Policy:
    """The planner's policy for these options. Raises ``InvalidInput`` for values that the policy
    does not allow."""
    age = options.max_skip_age_s
    preemption = options.preemption
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
        session_types=_restricted(options.session_types),
        slot_priority=tuple(options.slot_priority),
        exclusive=tuple(frozenset(families) for families in options.exclusive),
        preemption=None
        if preemption is None
        else Preemption(
            how=preemption.how,
            order=preemption.order,
            min_runtime=round(preemption.min_runtime_s * 1_000_000),
            among=preemption.among,
        ),
    )


def options_of(policy: Policy) -> GroupOptions:
    """The inverse of ``policy_of``."""
    age = policy.max_skip_age
    preemption = policy.preemption
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
                "among": preemption.among,
            },
        }
    )


def _policy(row: Row) -> tuple[str, Policy]:
    """A resource group's policy. It is read in full or not at all, because scheduling with only
    some of the options would be wrong."""
    return row["name"], policy_of(GroupOptions(**row["options"]))


def _site(row: Row) -> tuple[str, HpcOptions]:
    return row["name"], HpcOptions.model_validate(row["hpc"])


def _ceilings(row: Row) -> tuple[str, PriorityCeilings]:
    return row["name"], PriorityCeilings.model_validate(row["max_priority"])


def _limits(row: Row) -> tuple[str, GroupLimits]:
    return row["name"], GroupLimits.model_validate(row["limits"])


def _view(row: Any) -> resources.GroupView:
    return resources.GroupView.model_validate(
        {**row, "runtimes": offered_runtimes(row["runtimes"])}
    )
