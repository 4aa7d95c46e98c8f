"""Sessions to be created, as the columns of the statements that create them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.telemetry.spans import SpanContext, TraceSink, own_trace
from moorage.manager.crypto.ssh_keys import SshKeyPair
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.lifecycle.deadlines import deadline_s
from moorage.manager.store.database.rows import as_uuid
from moorage.manager.store.sessions import spec_kernels

# Fields that the previous release does not know and whose default is not null. That release refuses
# a specification that has them.
_NEW = ("secret_env", "user_labels", "notify")


@dataclass(frozen=True, slots=True)
class NewSession:
    """``request_digest``: digest of the request with the idempotency key, to detect a different
    request with the same key. ``template``: NAME@VERSION of the template from which it was created.
    ``request_hash``: set if equal sessions are reused. ``adopted_from``: the session whose run it
    shares. ``forced``: it does not reuse any run. ``traceparent``: the context under which its
    start is traced; None if it is not traced."""

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
    request_digest: str | None
    subs: tuple[spec_kernels.NewSubKernel, ...] = ()
    keys: SshKeyPair | None = None
    term: int | None = None
    endpoint_revision: int | None = None
    template: str | None = None
    user_labels: Mapping[str, str] = field(default_factory=dict)
    request_hash: str | None = None
    adopted_from: str | None = None
    forced: bool = False
    traceparent: str | None = None


def columns(items: Sequence[NewSession], lost_grace_s: float) -> tuple[list[Any], ...]:
    """Leading columns of both statements."""
    specs = {id(i.spec): i.spec for i in items}  # many steps in a pipeline share them
    texts = {key: stored_json(spec) for key, spec in specs.items()}
    return (
        [i.id for i in items],
        [i.name for i in items],
        [i.spec.type for i in items],
        [i.spec.resource_group for i in items],
        [i.spec.priority for i in items],
        [texts[id(i.spec)] for i in items],
        [json.dumps(i.slots) for i in items],
        [i.endpoint_id for i in items],
        [i.actor for i in items],
        [
            None if i.adopted_from else deadline_s(Status.PENDING, i.spec, lost_grace_s)
            for i in items
        ],
        [i.kernel_id for i in items],
        [i.secret for i in items],
        [i.idempotency_key.scope if i.idempotency_key else None for i in items],
        [i.idempotency_key.key if i.idempotency_key else None for i in items],
        [i.request_digest for i in items],
        [i.owner.user for i in items],
        [i.owner.project for i in items],
        [i.spec.starts_at for i in items],
    )


def dependency_columns(items: Sequence[NewSession]) -> tuple[list[Any], ...]:
    """Dependencies as columns, each with its session's position in ``items``. If a session shares
    another one's run, the other one counts as a dependency."""
    found: list[tuple[int, int, str, str]] = [
        (n, at, d.session, d.on)
        for n, i in enumerate(items, 1)
        for at, d in enumerate(i.spec.depends_on)
    ]
    found += [(n, -1, i.adopted_from, "adopted") for n, i in enumerate(items, 1) if i.adopted_from]
    numbers, positions, refs, conditions = zip(*found, strict=True) if found else ((), (), (), ())

    return (
        list(numbers),
        list(positions),
        list(refs),
        [as_uuid(ref) for ref in refs],
        list(conditions),
    )


def cluster_columns(items: Sequence[NewSession]) -> tuple[list[Any], ...]:
    """Sub kernels and SSH key pairs as columns, each with its session's position in ``items``."""
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


def stored_json(spec: SessionSpec) -> str:
    """Specification in its stored form. Without new fields, it can be read by a manager of the
    previous release, to which its agent may be connected during an upgrade."""
    return spec.model_dump_json(
        exclude_none=True, exclude={name for name in _NEW if not getattr(spec, name)}
    )


def traceparent(sink: TraceSink | None, request: SpanContext | None, session_id: str) -> str | None:
    """The trace context stored with a new session. ``request``: the span of the request that
    creates it, if any."""
    if request is None and sink is not None:
        request = own_trace(SessionId(session_id), sink)
    return None if request is None else request.traceparent


def digest(spec: SessionSpec) -> str:
    """SHA-256 of the request. Field order and explicit defaults make no difference."""
    request = spec.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
