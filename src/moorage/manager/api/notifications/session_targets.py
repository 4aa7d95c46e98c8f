"""Targets that sessions name in `notify`: the names of the caller's subscriptions.

`mail`, an e-mail address or a URL makes the subscription if there is none, so that one option of a
session suffices, as with sbatch's --mail-user.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from moorage.common.model.errors import Conflict, InvalidInput
from moorage.common.model.spec import SessionSpec
from moorage.common.model.subscriptions import DEFAULT_TARGET, NotificationEvent
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.manager.api.http.route import Call
from moorage.manager.api.notifications.handlers import create

S = TypeVar("S", bound=SessionSpec)


async def with_subscriptions(call: Call[Any, Any], spec: S) -> S:
    """``spec`` with the names of subscriptions instead of addresses and URLs. Raises
    ``InvalidInput`` with the field ``notify`` for one that does not exist and cannot be made."""
    if not spec.notify:
        return spec

    named: dict[str, list[NotificationEvent]] = {}
    for target, events in spec.notify.items():
        name = _name_of(target)
        named[name] = list(dict.fromkeys([*named.get(name, []), *events]))

    missing = await call.deps.store.subscriptions.unknown_names(call.scope, named)
    for target in spec.notify:
        name = _name_of(target)
        if name in missing:
            await _make(call, target, name)

    return spec.model_copy(update={"notify": named})


async def _make(call: Call[Any, Any], target: str, name: str) -> None:
    is_url = "://" in target
    if not is_url and "@" not in target and target != DEFAULT_TARGET:
        raise InvalidInput(
            f"you have no subscription {target!r}",
            field="notify",
            next_step="`moorage notifications` lists yours; or name `mail`, an address or a URL",
        )

    made = SubscriptionSpec(
        name=name,
        channel="webhook" if is_url else "mail",
        target="" if target == DEFAULT_TARGET else target,
    )
    try:
        await create(call, made)
    except Conflict:  # another request has just made it
        if await call.deps.store.subscriptions.unknown_names(call.scope, [name]):
            raise
    except InvalidInput as error:
        raise InvalidInput(error.message, field="notify", next_step=error.next_step) from None


def _name_of(target: str) -> str:
    """The name of the subscription for a target. A URL may be secret, so its name is a digest."""
    digest = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()[:10]
    if "://" in target:
        return f"webhook-{digest}"
    return f"mail-{digest}" if "@" in target else target
