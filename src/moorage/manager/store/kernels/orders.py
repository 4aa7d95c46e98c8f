"""Orders in Postgres: the kernels that should run on each agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from moorage.common.model.checkpointing import granted_grace_s
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.errors import ConfigError
from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import (
    DeviceGrant,
    HpcJob,
    KernelInput,
    KernelSpec,
    KernelTasks,
)
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType
from moorage.common.telemetry.spans import parse_traceparent, session_context
from moorage.manager.secrets.keyring import Keyring
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.identity.secrets import decrypt_env
from moorage.manager.store.sessions import spec_kernels
from moorage.manager.store.sessions.rows import parse_spec

log = structlog.get_logger("moorage.store")
# An agent of the previous release runs this instead of the tasks.
_TOO_OLD_FOR_TASKS = (
    *("sh", "-c"),
    "echo 'moorage: the agent of this node is too old for task lists: upgrade it' >&2; exit 1",
)
# Reading more specifications at once would block the event loop for too long.
_SPECS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class AgentOrders:
    """``kernels``: all kernels that should run on an agent. ``unwanted``: kernels that must not run
    and are not known to have ended there. ``withdrawn``: if the orders cover only some kernels,
    those of them that must not run; otherwise None."""

    kernels: tuple[KernelSpec, ...]
    unwanted: tuple[KernelId, ...]
    withdrawn: tuple[KernelId, ...] | None = None


class OrderStore:
    """``keep_unknown``: also order kernels that agents run but the database does not know.
    ``keyring`` decrypts the secrets of ``secret_env``."""

    def __init__(
        self,
        db: Database,
        keyring: Keyring,
        unreadable: UnreadableRows,
        *,
        keep_unknown: bool = True,
    ) -> None:
        self._keyring = keyring
        self._unreadable = unreadable
        self._connection = db.dedicated_connection()
        self._keep_unknown = keep_unknown
        self._newest_generation = (
            0  # the highest generation that a peer knows or that was drawn here
        )

        # the lowest generation that a peer claimed but Postgres refused
        self._implausible_generation = 1 << 63
        # Kernel specifications by the agent that should run them. After a kernel has been placed,
        # only the generation of its reload and its suspension change, which are read each time.
        self._known: dict[AgentId, dict[KernelId, KernelSpec]] = {}

    async def of(self, agent_id: AgentId) -> tuple[KernelSpec, ...]:
        """All kernels that should run on the agent."""
        return (await self.of_many([agent_id]))[agent_id].kernels

    async def of_many(
        self, agent_ids: Collection[AgentId], with_given_up: Collection[AgentId] = ()
    ) -> dict[AgentId, AgentOrders]:
        """The orders of each agent. ``with_given_up``: agents whose ``unwanted`` kernels include
        those that were given up and whose devices are still fenced.

        This costs one query, and one more if a kernel is new, because specifications are cached as
        long as the agent should run the kernel.
        """
        wanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in agent_ids}
        unwanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in agent_ids}
        fresh: dict[KernelId, KernelSpec] = {}
        varied: dict[KernelId, tuple[int, bool]] = {}
        args = list(wanted), list(with_given_up), self._keep_unknown
        for row in await self._connection.fetch(SQL["agent_kernels"], *args):
            (wanted if row["wanted"] else unwanted)[AgentId(row["agent_id"])].append(
                KernelId(row["id"])
            )
            if row["session_id"] is not None:
                fresh[KernelId(row["id"])] = _unknown_spec(row)
            varied[KernelId(row["id"])] = _varied(row)

        specs = await self._specs(wanted, fresh, varied)
        for agent_id, found in specs.items():
            if known := {k: spec for k, spec in found.items() if not _is_kept(spec)}:
                self._known[agent_id] = known
            else:
                self._known.pop(agent_id, None)

        return {
            a: AgentOrders(tuple(found.values()), tuple(unwanted[a])) for a, found in specs.items()
        }

    async def of_kernels(
        self, kernels: Mapping[AgentId, Collection[KernelId]]
    ) -> dict[AgentId, AgentOrders]:
        """The orders of each agent for these of its kernels."""
        asked = [(kernel_id, agent_id) for agent_id, ids in kernels.items() for kernel_id in ids]
        if not asked:
            return {}

        rows = await self._connection.fetch(SQL["kernels_ordered"], *zip(*asked, strict=True))
        wanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in kernels}
        unwanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in kernels}
        varied: dict[KernelId, tuple[int, bool]] = {}
        for row in rows:
            (wanted if row["wanted"] else unwanted)[AgentId(row["agent_id"])].append(
                KernelId(row["id"])
            )
            varied[KernelId(row["id"])] = _varied(row)

        orders = {}
        for agent_id, found in (await self._specs(wanted, {}, varied)).items():
            withdrawn = tuple(k for k in kernels[agent_id] if k not in found)
            known = self._known.setdefault(agent_id, {})
            known |= {k: spec for k, spec in found.items() if not _is_kept(spec)}
            for kernel_id in withdrawn:
                known.pop(kernel_id, None)

            orders[agent_id] = AgentOrders(
                tuple(found.values()), tuple(unwanted[agent_id]), withdrawn
            )

        return orders

    async def _specs(
        self,
        wanted: Mapping[AgentId, Collection[KernelId]],
        fresh: dict[KernelId, KernelSpec],
        varied: Mapping[KernelId, tuple[int, bool]],
    ) -> dict[AgentId, dict[KernelId, KernelSpec]]:
        """Specifications of these kernels: those in ``fresh``, cached ones, and the others from the
        database. ``varied``: their current variable parts."""
        known = {agent_id: self._known.get(agent_id, {}) for agent_id in wanted}
        new = [
            k for agent_id, kernels in wanted.items() for k in kernels if k not in known[agent_id]
        ]
        new = [k for k in new if k not in fresh]
        for start in range(0, len(new), _SPECS_AT_ONCE):
            part = new[start : start + _SPECS_AT_ONCE]
            rows = await self._connection.fetch(SQL["agent_orders"], part)
            fresh |= {
                KernelId(row["id"]): spec for row in rows if (spec := self._readable_spec(row))
            }

        return {
            agent_id: {
                k: spec if _is_kept(spec) else _current(spec, *varied[k])
                for k in kernels
                if (spec := known[agent_id].get(k) or fresh.get(k))
            }
            for agent_id, kernels in wanted.items()
        }

    def _readable_spec(self, row: Row) -> KernelSpec | None:
        """Read a specification. None if this manager cannot start the kernel, because a secret
        cannot be decrypted or its specification needs a newer manager. If the kernel has already
        been started, its agent keeps it."""
        try:
            env = decrypt_env(self._keyring, row["project"], row["secrets"])
        except ConfigError as error:
            log.error("a kernel waits for a secret", kernel_id=row["id"], error=str(error))
        else:
            read = partial(_kernel_spec, secret_env=env)
            if found := self._unreadable.each("session", [row], read, key="session_id"):
                return found[0]

        return _unknown_spec(row) if row["begun"] else None

    def note_generation(self, seen: int) -> None:
        """Note a generation known to a peer, so that every later one is greater. The database may
        be behind it after a backup was restored, or after a failover to a standby that had not
        received every commit."""
        if seen < self._implausible_generation:
            self._newest_generation = max(self._newest_generation, seen)

    async def next_generation(self) -> int:
        """Return a number greater than any that a manager has issued before, and greater than those
        noted, except those that no manager can have issued yet."""
        [row] = await self._connection.fetch(SQL["generation_next"])
        if row["generation"] <= (seen := self._newest_generation):
            log.warning(
                "the database is behind its peers: continuing above them",
                generation=row["generation"],
                seen=seen,
            )
            [row] = await self._connection.fetch(SQL["generation_raise"], seen)
            if row["generation"] <= seen:
                log.error(
                    "a peer claims a generation that no manager has issued: ignored", claimed=seen
                )
                self._implausible_generation = seen
                self._newest_generation = row["generation"]

        self.note_generation(row["generation"])
        return int(row["generation"])


def _is_kept(spec: KernelSpec) -> bool:
    """Whether the kernel has the placeholder from ``_unknown_spec``."""
    return not spec.runtime


def _varied(row: Row) -> tuple[int, bool]:
    """The parts of a specification that change while its kernel runs: the generation of its newest
    reload, and whether it is suspended."""
    return row["reload_generation"] or 0, row["suspended"]


def _current(spec: KernelSpec, generation: int, suspended: bool) -> KernelSpec:
    if spec.varied == (generation, suspended):
        return spec
    return replace(spec, reload_generation=generation, suspended=suspended)


def _kernel_spec(row: Row, secret_env: Mapping[str, str]) -> KernelSpec:
    """Build a specification from a row of ``agent_orders.sql`` and the values of its
    ``secret_env``."""
    session_spec = parse_spec(row["spec"])
    is_main = row["cluster_role"] == "main"
    spec = session_spec if is_main else spec_kernels.sub_kernel_spec(session_spec)
    slots = (
        spec_kernels.requested_slots(session_spec)
        if is_main
        else spec_kernels.sub_slots(session_spec)
    )
    probe = spec.probe

    return KernelSpec(
        kernel_id=KernelId(row["id"]),
        session_id=SessionId(row["session_id"]),
        session_name=row["name"],
        session_type=_type_at_agents(row["type"]),
        runtime=spec.runtime,
        engine=spec.engine,
        served_name=row["endpoint_name"] or row["name"],
        image=spec.image or "",
        container_user=row["container_user"] or "",
        workspace=spec.workspace or ("" if row["outputs"] is None else "drop"),
        outputs=tuple(row["outputs"] or ()),
        inputs=tuple(
            KernelInput(SessionId(s), output, path) for s, output, path in row["inputs"] or ()
        ),
        ports=tuple(port.declared() for port in spec.ports) if is_main else (),
        model=spec.model or "",
        args=tuple(spec.args),
        command=tuple(spec.command) if spec.tasks is None else _TOO_OLD_FOR_TASKS,
        env={**secret_env, **spec.env},
        probe_path=probe.path if probe else "",
        probe_period_s=probe.period_s if probe else 0.5,
        slots=slots,
        devices=tuple(
            DeviceGrant(slot, DeviceId(device), amount) for slot, device, amount in row["devices"]
        ),
        secret=row["secret"],
        start_timeout_s=spec.start_timeout_s,
        stop_grace_s=spec.stop_grace_s,
        endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
        cluster=_membership(row, session_spec),
        lease_s=row["lease_s"] or 0.0,
        isolated=row["isolated"],
        hpc=_hpc_job(spec),
        reload=None if spec.reload is None else spec.reload.declared(is_main=is_main),
        traceparent=_traceparent(row),
        attempt=row["attempt"],
        user=row["owner"] or "",
        project=row["project"],
        time_limit_s=_time_limit_s(session_spec),
        tasks=_tasks(spec),
        **_checkpoint(row, session_spec),
    )


def _tasks(spec: SessionSpec) -> KernelTasks | None:
    tasks = spec.tasks
    if tasks is None:
        return None
    return KernelTasks(tuple(spec.command), tasks.workers or 0, tasks.timeout_s or 0.0)


def _time_limit_s(spec: SessionSpec) -> float:
    """When the session's run ends at the latest, after its start; 0 if it has no limit."""
    limits = [limit for limit in (spec.timeout_s, spec.max_lifetime_s) if limit is not None]
    return min(limits, default=0.0)


def _checkpoint(row: Row, spec: SessionSpec) -> dict[str, Any]:
    """The checkpoint setting of each of a session's kernels, within the current limits of its
    resource group."""
    if spec.checkpoint is None:
        return {}
    grace_s = granted_grace_s(spec.checkpoint.grace_s, row["max_grace_s"])
    if not grace_s:
        return {}
    return {"checkpoint_signal": spec.checkpoint.signal, "checkpoint_grace_s": grace_s}


def _traceparent(row: Row) -> str:
    """Trace context of the session's start; empty if it is not traced."""
    stored = parse_traceparent(row["traceparent"])
    return (
        ""
        if stored is None
        else session_context(SessionId(row["session_id"]), stored)[0].traceparent
    )


def _type_at_agents(kind: str) -> SessionType:
    """The session type for agents. They run a system session as an interactive one, because agents
    of the previous release do not know system sessions."""
    return SessionType.INTERACTIVE if kind == SessionType.SYSTEM else SessionType(kind)


def _hpc_job(spec: SessionSpec) -> HpcJob | None:
    return (
        None
        if spec.job is None
        else HpcJob(**spec.job.model_dump(), walltime_s=spec.walltime_s or 0.0)
    )


def _unknown_spec(row: Row) -> KernelSpec:
    """Placeholder for a kernel that its agent already has: the agent keeps its kernel with this
    id."""
    return KernelSpec(
        kernel_id=KernelId(row["id"]),
        session_id=SessionId(row["session_id"]),
        session_name="",
        session_type=SessionType.BATCH,
        runtime="",
        engine="custom",
        served_name="",
    )


def _membership(row: Mapping[str, Any], spec: SessionSpec) -> ClusterMembership | None:
    """The kernel's place in its cluster; None for a session with one kernel."""
    if spec.cluster is None:
        return None

    private_key, public_key = row["keys"] or ("", "")
    return ClusterMembership(
        hostname=row["hostname"],
        role=row["cluster_role"],
        index=row["cluster_index"],
        mode=spec.cluster.mode,
        group=KernelId(row["peers"][0][0]),
        members=tuple(ClusterMember(hostname, address) for _, hostname, address in row["peers"]),
        private_key=private_key,
        public_key=public_key,
    )
