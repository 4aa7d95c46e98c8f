"""Submission of the runs of cron jobs, sessions and pipelines, with the present rights of their
owners."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from moorage.common.model.cron_jobs import CronJobSpec
from moorage.common.model.errors import Forbidden, InvalidInput
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.templates import TemplateRun, split_version
from moorage.manager.api.http.authorization import MAY
from moorage.manager.api.http.dependencies import ApiServices
from moorage.manager.api.http.route import Submission
from moorage.manager.api.pipelines import handlers as pipelines
from moorage.manager.api.sessions import handlers as sessions
from moorage.manager.api.sessions import templates
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store.pipelines.cron_jobs import CRON, CronJob, NewCronRun
from moorage.manager.workloads import step_reuse
from moorage.manager.workloads.cron_runs import run_name
from moorage.manager.workloads.pipeline_steps import OnceOnly

_PLAN = sessions.PlanQuery()


class CronSubmitter:
    """``start`` and ``check`` raise the errors of a submission by the owner."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    async def start(self, job: CronJob, run: NewCronRun, *, by_hand: bool = False) -> None:
        """Create the session or the pipeline of a recorded run, and mark the run as started, in one
        transaction. Also raises ``Conflict`` if the run has started already."""
        scope = await self._scope(job)
        name = run_name(job.name, run.scheduled_at, manual=by_hand)
        key = IdempotencyKey(CRON, run.id)
        if job.spec.pipeline is not None:
            await self._start_pipeline(scope, job.spec.pipeline, name, key)
            return

        spec, scope, template, forced = await self._session(scope, job.spec)
        spec = spec.model_copy(update={"name": name})
        if spec.tasks is not None:
            stored = await self._services.store.tasks.put(spec.tasks)
            spec = spec.model_copy(update={"tasks": stored})

        await self._services.store.sessions.create_once(
            scope, spec, idempotency_key=key, template=template.ref, forced=forced
        )

    async def check(self, scope: Scope, spec: CronJobSpec) -> list[str]:
        """Check that the caller may submit what a cron job would submit. Returns warnings."""
        if spec.pipeline is not None:
            await pipelines.submitted_sessions(self._submission(scope, spec.pipeline))
            return []

        made, _, _, _ = await self._session(scope, spec)
        message = REASONS[Reason.INFEASIBLE].text
        why = await self._services.explanations.infeasible(made)
        return [f"{message}: {line}" for line in why]

    async def _scope(self, job: CronJob) -> Scope:
        key = await self._services.store.keys.of_user(Owner(job.owner, job.project), job.granted)
        scope = replace(Scope.of(key), actor=f"cron:{job.name}")
        if key.role not in MAY["member"]:
            raise Forbidden(
                f"user {job.owner!r} has the role {str(key.role)!r} in project {job.project!r}, and "
                "a run requires 'member'",
                next_step=f"`moorage projects members set {job.project} {job.owner} member`",
            )
        return scope

    async def _start_pipeline(
        self, scope: Scope, spec: PipelineSpec, name: str, key: IdempotencyKey
    ) -> None:
        spec = spec.model_copy(update={"name": name})
        specs, new = await pipelines.submitted_sessions(self._submission(scope, spec))
        new = step_reuse.with_meanings(new, scope.owner.project, forced=False)
        once = OnceOnly(key, hashlib.sha256(key.key.encode()).hexdigest())
        await self._services.store.pipelines.create(
            scope, pipelines.pinned(spec, specs), new, once=once
        )

    async def _session(
        self, scope: Scope, spec: CronJobSpec
    ) -> tuple[SessionSpec, Scope, sessions.OfTemplate, bool]:
        """The specification as it would be stored, with the scope and the template of the
        session, and whether it is forced to run."""
        template = sessions.OfTemplate()
        body = spec.session
        if body is None:
            run = self._template_run(spec)
            name, _ = _split(spec.template or "")
            body, scope, template = await templates.filled_in(self._submission(scope, run), name)

        made, forced = await sessions.checked(self._submission(scope, body), template)
        return made, scope, template, forced

    def _template_run(self, spec: CronJobSpec) -> TemplateRun:
        _, version = _split(spec.template or "")
        return TemplateRun(version=version, parameters=spec.parameters, overrides=spec.overrides)

    def _submission(self, scope: Scope, body: Any) -> Submission[Any, Any]:
        return Submission(self._services, scope, body=body, query=_PLAN)


def _split(ref: str) -> tuple[str, int | None]:
    try:
        return split_version(ref)
    except ValueError as error:
        raise InvalidInput(
            str(error), field="template", next_step="name a version that exists"
        ) from None
