"""New sessions: durable when the call returns, in one round trip that is shared by all who come at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MoorageError,
    NotFound,
    QuotaExceeded,
)
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Result, Status
from moorage.common.views import resources
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.lifecycle.deadlines import deadline_s
from moorage.manager.pki.ssh_keys import SshKeyPair, derive_key_pair
from moorage.manager.store import cluster_rows, rows
from moorage.manager.store.batch_writer import Coalescer
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.queries import SQL

# How long a create may be sent again under its key. Far beyond any client's patience.
KEYS_KEPT_HOURS = 24


@dataclass(frozen=True, slots=True)
class _New:
    id: str
    name: str
    spec: SessionSpec
    slots: dict[str, int]
    endpoint_id: EndpointId | None
    actor: str
    owner: Owner
    kernel_id: str
    secret: str
    idempotency_key: IdempotencyKey | None
    asked: str | None
    subs: tuple[cluster_rows.Sub, ...] = ()
    keys: SshKeyPair | None = None


class Creates:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock, lost_grace_s: float) -> None:
        self._db, self._notifier, self._clock, self._lost_grace_s = db, notifier, clock, lost_grace_s
        self._create_line = db.line()
        # Whether waiting sessions were counted by some quota when we last made one.
        self._limited = False
        self._creates: Coalescer[_New, Any] = Coalescer("create", self._write_creates, clock)

    async def create_session(
        self,
        spec: SessionSpec,
        *,
        actor: str,
        owner: Owner | None = None,
        endpoint_id: EndpointId | None = None,
    ) -> resources.SessionView:
        """Durable when it returns. ``owner``: whose it is, else the actor's.

        Raises ``Conflict`` for a live name or a type that the group does not allow, ``NotFound`` for the
        group or a dependency, ``Forbidden`` or ``InvalidInput`` for a dependency that may not be one, and
        ``QuotaExceeded`` when as many wait as may.
        """
        new = self._new(spec, actor, owner or Owner(actor), endpoint_id, None)
        return self._made(new, await self._creates.submit(new))

    async def _create_once(
        self, spec: SessionSpec, actor: str, owner: Owner, idempotency_key: IdempotencyKey
    ) -> resources.SessionView | SessionId:
        """The session made now, or the id of the one that was made under this key before."""
        new = self._new(spec, actor, owner, None, idempotency_key)
        try:
            row = await self._creates.submit(new)
        except asyncpg.UniqueViolationError:  # somebody else has just used the key
            row = None
        if row is not None and not row["seen"] and (row["created_at"] is not None or _refusal(new, row)):
            return self._made(new, row)
        before = await self._db.fetchrow(SQL["idempotency_find"], idempotency_key.scope, idempotency_key.key)
        if before is None:
            raise _name_taken(new.name)
        if before["asked"] != new.asked:
            raise Conflict(
                f"the Idempotency-Key {idempotency_key.key!r} was used before with another request",
                next_step="make a new key for each new request, or send the same request unchanged",
            )
        return SessionId(before["session_id"])

    async def forget_keys(self) -> None:
        """Keys older than ``KEYS_KEPT_HOURS``."""
        await self._create_line.fetch(SQL["idempotency_sweep"], KEYS_KEPT_HOURS)

    def _new(
        self,
        spec: SessionSpec,
        actor: str,
        owner: Owner,
        endpoint_id: EndpointId | None,
        idempotency_key: IdempotencyKey | None,
    ) -> _New:
        made = self._clock.new_id()
        name = spec.name or f"{spec.type}-{made[-8:]}"
        kernel, secret = self._clock.new_id(), self._clock.secret()
        asked = _digest(spec) if idempotency_key else None
        slots = cluster_rows.total_slots(spec)
        new = _New(made, name, spec, slots, endpoint_id, actor, owner, kernel, secret, idempotency_key, asked)
        if spec.cluster is None:
            return new
        keys = derive_key_pair(self._clock.secret(32), f"moorage-{made}")
        return replace(new, subs=cluster_rows.subs_of(spec, self._clock), keys=keys)

    def _made(self, new: _New, row: Any) -> resources.SessionView:
        """What was written, without asking for it again."""
        created = row["created_at"]
        if created is None:
            raise _refusal(new, row) or _name_taken(new.name)
        self._notifier.notify_waiting([SessionId(new.id)])
        first = resources.KernelView(
            id=new.kernel_id,
            attempt=1,
            status=Status.PENDING,
            agent_id=None,
            status_since=created,
        )
        subs = [
            first.model_copy(
                update={
                    "id": sub.kernel_id,
                    "role": "sub",
                    "index": sub.index,
                    "hostname": f"sub{sub.index}",
                }
            )
            for sub in new.subs
        ]
        return resources.SessionView(
            id=new.id,
            name=new.name,
            type=new.spec.type,
            status=Status.PENDING,
            result=Result.UNDEFINED,
            reason=Reason.NONE,
            detail="",
            resource_group=new.spec.resource_group,
            priority=new.spec.priority,
            attempt=1,
            revision=1,
            created_at=created,
            status_since=created,
            deadline_at=row["deadline_at"],
            user=new.owner.user,
            project=new.owner.project,
            hold=rows.waits_until(None, new.spec.starts_at, created),
            slots=new.slots,
            spec=new.spec,
            kernels=[first, *subs],
        )

    async def _write_creates(self, items: Sequence[_New]) -> Sequence[Any]:
        needs = [(n, at, d) for n, i in enumerate(items, 1) for at, d in enumerate(i.spec.depends_on)]
        asked = (
            [i.id for i in items],
            [i.name for i in items],
            [i.spec.type for i in items],
            [i.spec.resource_group for i in items],
            [i.spec.priority for i in items],
            [i.spec.model_dump_json(exclude_none=True) for i in items],
            [json.dumps(i.slots) for i in items],
            [i.endpoint_id for i in items],
            [i.actor for i in items],
            [deadline_s(Status.PENDING, i.spec, self._lost_grace_s) for i in items],
            [i.kernel_id for i in items],
            [i.secret for i in items],
            [i.idempotency_key.scope if i.idempotency_key else None for i in items],
            [i.idempotency_key.key if i.idempotency_key else None for i in items],
            [i.asked for i in items],
            [i.owner.user for i in items],
            [i.owner.project for i in items],
            [i.spec.starts_at for i in items],
        )
        made: list[Any] = []
        clusters = any(i.subs for i in items)
        if not needs and not clusters and not self._limited:
            made = await self._create_line.fetch(SQL["session_create"], *asked)
            self._limited = made[0]["limited"]
        if needs or clusters or self._limited:
            made = await self._create_line.fetch(
                SQL["session_create_checked"],
                *asked,
                [n for n, _, _ in needs],
                [at for _, at, _ in needs],
                [d.session for _, _, d in needs],
                [rows.as_id(d.session) for _, _, d in needs],
                [d.on for _, _, d in needs],
                *_of_clusters(items),
            )
            self._limited = made[0]["limited"]
        return made


def _of_clusters(items: Sequence[_New]) -> tuple[list[Any], ...]:
    """The subs, and the key pairs, each with the number of its session among ``items``."""
    subs = [(n, sub) for n, i in enumerate(items, 1) for sub in i.subs]
    keys = [(n, i.keys) for n, i in enumerate(items, 1) if i.keys is not None]
    return (
        [n for n, _ in subs],
        [sub.index for _, sub in subs],
        [sub.kernel_id for _, sub in subs],
        [sub.secret for _, sub in subs],
        [n for n, _ in keys],
        [pair.private_key for _, pair in keys],
        [pair.public_key for _, pair in keys],
    )


def _digest(spec: SessionSpec) -> str:
    """SHA-256 of what is asked for; the order of fields and spelt-out defaults make no difference."""
    asked = spec.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _name_taken(name: str) -> Conflict:
    return Conflict(f"a live session is already called {name!r}", next_step="stop it, or choose another name")


def _refusal(new: _New, row: Any) -> MoorageError | None:
    """Why nothing was made, as far as the statement says; None: for none of these reasons."""
    spec = new.spec
    if not row["group_known"]:
        return NotFound(
            f"resource_group {spec.resource_group!r} does not exist",
            next_step="`moorage groups` lists them",
        )
    if row["types_allowed"] is not None:
        return Conflict(
            f"type {spec.type!s} is not allowed in resource_group {spec.resource_group!r}: allowed is "
            f"{', '.join(row['types_allowed'])}",
            next_step="ask for another resource group; `moorage groups describe` tells what each allows",
        )
    if row["wrong_why"] is not None:
        return wrong_dependency(spec, new.owner, row["wrong_at"], row["wrong_why"], row["wrong_project"])
    if row["crowded_scope"] is not None:
        return QuotaExceeded(
            f"{row['crowded_scope']} {row['crowded_name']!r} may have {row['crowded_limit']} pending "
            "sessions, and has as many",
            next_step="wait until some have started, stop some, or ask an administrator for a larger quota",
        )
    return None


def wrong_dependency(spec: SessionSpec, owner: Owner, at: int, why: str, project: str | None) -> MoorageError:
    """Why ``owner`` may not depend on the ``at``-th of ``depends_on``, which is of ``project``."""
    asked = spec.depends_on[at]
    field = f"depends_on[{at}].session = {asked.session!r}"
    if why == "unknown":
        return NotFound(
            f"{field} is no session",
            next_step="create it first; `moorage ps --all` lists what there is",
        )
    if why == "foreign":
        return Forbidden(
            f"{field} belongs to project {project!r}, this one to {owner.project!r}",
            next_step="depend on sessions of the same project",
        )
    return InvalidInput(
        f"{field} is no batch session, so it has no success: allowed is on = any, failure",
        next_step="say how it must end, like {'session': ..., 'on': 'any'}",
    )
