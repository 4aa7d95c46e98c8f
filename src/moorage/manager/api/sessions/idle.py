"""Handlers for idle criteria of sessions."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import Conflict, InvalidInput
from moorage.common.model.session_access import Action
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.idle import CriterionView, Extension, IdleView
from moorage.common.views.resources import GroupView, SessionView
from moorage.manager.api.http import authorization
from moorage.manager.api.http.route import SESSION_PATH, Call, NoQuery, Submission, route
from moorage.manager.workloads.idle import IdleSettings, find_problem, settings_of


async def check_choice(call: Submission[Any, Any], spec: SessionSpec) -> None:
    """Raise ``InvalidInput`` for idle criteria outside the resource group's bounds."""
    if spec.idle is None:
        return
    group = await call.deps.store.groups.get(spec.resource_group)
    if why := find_problem(group.options.idle, call.scope.owner.project, spec.idle):
        raise InvalidInput(
            why,
            field="idle",
            next_step=f"omit it, or ask an administrator of resource group {group.name!r}",
        )


@route(
    "GET",
    f"{SESSION_PATH}/idle",
    "Show when a session will end because of inactivity, by criterion",
    returns=IdleView,
    action=Action.SEE,
)
async def get_session_idle(call: Call[None, NoQuery]) -> IdleView:
    return await _view(call, await authorization.session_of(call))


@route(
    "POST",
    f"{SESSION_PATH}/extend",
    "Extend a session that would end because of inactivity",
    body=Extension,
    returns=IdleView,
    action=Action.CHANGE,
)
async def extend_session(call: Call[Extension, NoQuery]) -> IdleView:
    session = await authorization.session_of(call)
    settings = await _settings(call, session)
    seconds = call.body.seconds

    if session.status is not Status.RUNNING or not settings.criteria:
        why = (
            f"it is {session.status}"
            if session.status is not Status.RUNNING
            else "no idle criterion applies"
        )
        raise Conflict(
            f"session {session.name!r} cannot be extended: {why}",
            next_step=f"`moorage describe {session.name}` shows why it will end",
        )

    if seconds is not None and seconds > settings.extension_s:
        raise InvalidInput(
            (
                f"seconds = {seconds:g} is above {settings.extension_s:g}, the maximum of the "
                "resource group"
            ),
            field="seconds",
            next_step="extend it for less time, several times if necessary",
        )

    if settings.extension_s == 0 or not await call.deps.store.idle.extend(
        call.scope, session.id, seconds or settings.extension_s, settings.extensions
    ):
        allowed = settings.extensions if settings.extension_s else 0
        raise Conflict(
            f"session {session.name!r} cannot be extended now: it allows {allowed} extensions",
            next_step=(
                "use the session: traffic and work keep it running; a session that has just "
                "started can be extended soon"
            ),
        )

    return await _view(call, session)


async def _settings(call: Call[Any, Any], session: SessionView) -> IdleSettings:
    group: GroupView = await call.deps.store.groups.get(session.resource_group)
    if session.type != "interactive":
        return IdleSettings()
    return settings_of(group.options.idle, session.project, session.spec.idle)


async def _view(call: Call[Any, Any], session: SessionView) -> IdleView:
    settings = await _settings(call, session)
    stored = await call.deps.store.idle.find(call.scope, session.id)
    left = {} if stored is None else stored.remaining
    view = IdleView(
        session_id=session.id,
        criteria=[
            CriterionView(name=name, remaining_s=left.get(name)) for name in settings.criteria
        ],
        end_when=settings.end_when,
        max_extensions=settings.extensions,
        max_extension_s=settings.extension_s,
    )
    if stored is None or session.status is not Status.RUNNING:
        return view

    return view.model_copy(
        update={
            "criterion": stored.criterion,
            "ends_in_s": stored.ends_in_s,
            "warned": stored.state.warned_s is not None,
            "extensions": stored.state.extensions,
        }
    )
