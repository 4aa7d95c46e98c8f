"""Visibility of session data: names instead of ids in messages, and parts that views omit for
callers who may not see them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from moorage.common.model.ids import SessionId
from moorage.common.model.roles import Role
from moorage.common.model.session_access import Action
from moorage.common.views.resources import HistoryEntry, KernelView, SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.identity.session_access import allows

V = TypeVar("V", SessionView, HistoryEntry)
Naming = Callable[[str], str]

_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_OTHER = "of another project"


def mentioned(texts: Iterable[str]) -> set[SessionId]:
    """Ids of other sessions in messages, as the scheduler writes them."""
    return {SessionId(found) for text in texts for found in _ID.findall(text)}


def messages(view: SessionView | HistoryEntry) -> list[str]:
    texts = [view.detail]
    if isinstance(view, SessionView):
        texts += [kernel.detail for kernel in view.kernels]
        texts += [view.hold.text, *view.hold.refusals] if view.hold is not None else []
    return texts


def _sees_all(scope: Scope) -> bool:
    return scope.projects is None and scope.role is not Role.AUDITOR


def naming(scope: Scope, names: Mapping[SessionId, str]) -> Naming:
    """Replace ids with names in a message. ``names``: names of the sessions that the caller may
    see.

    Other ids stay if the caller sees all sessions, because they then are not session ids or belong
    to removed sessions."""
    other = None if _sees_all(scope) else _OTHER

    def named(text: str) -> str:
        return _ID.sub(lambda found: names.get(SessionId(found[0]), other or found[0]), text)

    return named


def as_seen(scope: Scope, views: list[V], clean: Naming) -> list[V]:
    """Views with names instead of ids in their messages, and without the output of sessions that
    the caller does not control."""
    if _sees_all(scope) and not any(mentioned(messages(view)) for view in views):
        return views  # long lists for administrators need no copy
    return [_as_seen(scope, view, clean) for view in views]


def _as_seen(scope: Scope, view: V, clean: Naming) -> V:
    changes: dict[str, object] = {"detail": clean(view.detail)}
    if isinstance(view, SessionView):
        shows_output = allows(scope, view, Action.LOGS)

        def kernel(kernel_view: KernelView) -> KernelView:
            output = kernel_view.log_tail if shows_output else ""
            return kernel_view.model_copy(
                update={"detail": clean(kernel_view.detail), "log_tail": output}
            )

        changes["kernels"] = [kernel(kernel_view) for kernel_view in view.kernels]
        if view.hold is not None:
            refusals = [clean(line) for line in view.hold.refusals]
            changes["hold"] = view.hold.model_copy(
                update={"text": clean(view.hold.text), "refusals": refusals}
            )

    return view.model_copy(update=changes)
