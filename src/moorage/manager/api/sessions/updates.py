"""Handlers that change sessions which wait or run."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.model.errors import Conflict, NotFound, RunLimitExceeded
from moorage.common.model.ids import SessionId
from moorage.common.model.session_access import Action
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.model.templates import split_version
from moorage.common.views.resources import SessionPatch, SessionView
from moorage.manager.api.http import authorization, group_limits, qos
from moorage.manager.api.http.route import SESSION_PATH, Call, NoQuery, route
from moorage.manager.api.sessions.handlers import tagged
from moorage.manager.store.database.versions import check_version
from moorage.manager.workloads import run_limits, session_changes
from moorage.manager.workloads.run_limits import RunLimits
from moorage.manager.workloads.session_changes import SessionUpdate

# Each attempt after the first means that another writer has changed the session.
_ATTEMPTS = 20

PatchCall = Call[SessionPatch, NoQuery]


@route(
    "PATCH",
    SESSION_PATH,
    "Change a session: its name, labels, priority, time limit or group, or hold it",
    body=SessionPatch,
    returns=SessionView,
    versioned=True,
    action=Action.CHANGE,
)
async def update_session(call: PatchCall) -> SessionView:
    """Change a session as it was read. If it has changed in the meantime, for example because it
    has started, the change is decided again."""
    asked = call.if_match("a session")
    for _ in range(_ATTEMPTS):
        session = await authorization.session_of(call)
        check_version(f"session {session.name!r}", session.revision, asked)
        change = await _decide(call, session)
        if change == SessionUpdate(old_limit_s=change.old_limit_s):
            return tagged(call, session)
        if await call.deps.store.session_records.update(call.scope, session, change):
            return await _changed(call, session, change)

    raise Conflict(
        f"session {session.name!r} changes all the time: it is {session.status}",
        next_step="repeat the request",
    )


async def _changed(call: PatchCall, session: SessionView, change: SessionUpdate) -> SessionView:
    """The session after the change, with warnings if no agent of its new group could run it."""
    view = await call.deps.store.sessions.get(call.scope, session.id)
    if change.resource_group is not None and view.status is Status.PENDING:
        found = await call.deps.explanations.infeasible(view.spec)
        view = view.model_copy(update={"warnings": found})
    return tagged(call, view)


async def _decide(call: PatchCall, session: SessionView) -> SessionUpdate:
    """Decide the change. Raises the error of the first check that does not allow it."""
    patch = call.body
    if patch.resource_group is not None:
        group = await call.deps.store.groups.get(patch.resource_group)
        patch = patch.model_copy(update={"resource_group": group.name})

    role = call.scope.role
    if error := session_changes.find_refusal(session, patch, role):
        raise error

    spec = session_changes.changed_spec(session.spec, patch)
    # The limits of the session's project apply, also to an administrator of another one.
    owner = replace(call.scope.owner, project=session.project)
    of_project = replace(call, scope=replace(call.scope, owner=owner))
    if spec.priority > session.priority:
        qos.apply(spec, await qos.find(of_project, spec))
    if spec.resource_group != session.resource_group:
        patch = await _check_group(of_project, session, patch)
    else:
        await _check_growth(of_project, session, spec)

    user = call.scope.owner.user
    return session_changes.change_of(session, patch, user=user, role=role)


async def _check_growth(call: PatchCall, session: SessionView, spec: SessionSpec) -> None:
    """Check a higher priority and a longer time limit as at submission. An administrator may extend
    a session that has started beyond the limits of its group."""
    if spec.priority > session.priority:
        # The site's request is the group's, and not checked again.
        checked = spec.model_copy(update={"job": None})
        await authorization.check_limits(call, checked, new_work=False)

    old_s = session_changes.time_limit_s(session.spec)
    new_s = session_changes.time_limit_s(spec)
    if old_s is None or new_s is None or new_s <= old_s:
        return
    if session.status is Status.PENDING:
        await _check_run_limits(call, spec, await _template_limits(call, session))
    elif error := await call.deps.explanations.delays(call.scope, session, new_s - old_s):
        raise error


async def _check_group(call: PatchCall, session: SessionView, patch: SessionPatch) -> SessionPatch:
    """Check a pending session in its new group as at submission. Returns the patch, with the time
    limit that the group gives to sessions without one."""
    spec = session_changes.changed_spec(session.spec, patch)
    site = await call.deps.store.groups.site(spec.resource_group)
    if site is not None or session.spec.job is not None:
        raise Conflict(
            f"session {session.name!r} cannot move from resource_group "
            f"{session.resource_group!r} to {spec.resource_group!r}: one of them has a site, which "
            "determines how the session runs",
            next_step="stop it, and submit it to the other group",
        )

    await authorization.check_limits(call, spec, new_work=False)
    template = await _template_limits(call, session)
    limited = await group_limits.with_time_limit(call, spec, template)
    await _check_run_limits(call, limited, template)
    if limited == spec:
        return patch
    return patch.model_copy(update={"time_limit_s": session_changes.time_limit_s(limited)})


async def _check_run_limits(call: PatchCall, spec: SessionSpec, template: RunLimits | None) -> None:
    """Check the limits of the group, the key and the template. The error names the field of the
    request rather than that of the specification."""
    try:
        await group_limits.check(call, spec, template)
    except RunLimitExceeded as error:
        name = session_changes.LIMIT_FIELD.get(spec.type)
        if error.fields.get("field") != name or name is None:
            raise
        raise RunLimitExceeded(
            error.message.replace(name, "time_limit_s"),
            next_step=error.next_step.replace(name, "time_limit_s"),
            **error.fields | {"field": "time_limit_s"},
        ) from None


async def _template_limits(call: PatchCall, session: SessionView) -> RunLimits | None:
    """The limits of the session's template; None if it has none, or has been deleted."""
    if session.template is None:
        return None

    try:
        found = await call.deps.store.templates.get(call.scope, *split_version(session.template))
    except NotFound:
        return None
    return run_limits.of_template(found.ref, found.template)


@route(
    "POST",
    f"{SESSION_PATH}/requeue",
    "Stop the program of a batch session, and return the session to the queue as a new attempt",
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def requeue_session(call: Call[None, NoQuery]) -> SessionView:
    """The new attempt starts once the former one is known to have ended. It counts no retry."""
    session = await authorization.session_of(call)
    if error := session_changes.refuse_requeue(session):
        raise error

    if not await call.deps.terminator.requeue(call.scope, SessionId(session.id)):
        now = await call.deps.store.sessions.get(call.scope, session.id)
        raise session_changes.refuse_requeue(now) or Conflict(
            f"session {session.name!r} has just ended", next_step="submit it again"
        )

    return await call.deps.store.sessions.get(call.scope, session.id)


@route(
    "POST",
    f"{SESSION_PATH}/suspend",
    "Stop the processes of a running session where they are. It keeps its resources.",
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def suspend_session(call: Call[None, NoQuery]) -> SessionView:
    return await _suspend(call, resume=False)


@route(
    "POST",
    f"{SESSION_PATH}/resume",
    "Let the processes of a suspended session continue",
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def resume_session(call: Call[None, NoQuery]) -> SessionView:
    return await _suspend(call, resume=True)


async def _suspend(call: Call[None, NoQuery], *, resume: bool) -> SessionView:
    records = call.deps.store.session_records
    for _ in range(_ATTEMPTS):
        session = await authorization.session_of(call)
        if resume and session.status is Status.RUNNING and session.suspended is None:
            return session
        if session.suspended is not None and not resume:
            return session

        agents = {} if resume else await records.not_suspendable(call.scope, session)
        if error := session_changes.refuse_suspension(session, agents, resume=resume):
            raise error
        if await records.suspend(call.scope, session, resume=resume):
            return await call.deps.store.sessions.get(call.scope, session.id)

    raise Conflict(
        f"session {session.name!r} changes all the time: it is {session.status}",
        next_step="repeat the request",
    )
