"""Plug-ins for the shipped runtimes, named by this package's entry points.

The clients for sites are imported when their runtime is created.
"""

from __future__ import annotations

import sys

from moorage.agent.runtimes.base import Runtime
from moorage.agent.runtimes.docker.availability import collect_images, docker_runtime
from moorage.agent.runtimes.fake import FakeRuntime
from moorage.agent.runtimes.plugins import INTERFACE, AgentParts, RuntimePlugin
from moorage.agent.runtimes.process import ProcessRuntime
from moorage.agent.runtimes.process.isolation import rules_of
from moorage.common.model.errors import ConfigError

_IMAGE_GC_S = 60.0


def _process(parts: AgentParts, _: None) -> Runtime:
    settings = parts.settings
    return ProcessRuntime(
        parts.state,
        parts.logs,
        log_max_bytes=settings.log_max_bytes,
        log_keep_files=settings.log_keep_files,
        isolation=rules_of(settings, parts.home),
    )


def _docker(parts: AgentParts, _: None) -> Runtime | None:
    return docker_runtime(parts.settings, parts.state, parts.logs, parts.clock)


def _fake(parts: AgentParts, _: None) -> Runtime:
    return FakeRuntime(parts.logs)


def _slurm(parts: AgentParts, _: None) -> Runtime:
    from moorage.agent.runtimes.slurm.construction import slurm_runtime

    return slurm_runtime(
        parts.settings, parts.state, logs=parts.logs, clock=parts.clock, identity=parts.identity
    )


def _heappe(parts: AgentParts, _: None) -> Runtime:
    from moorage.agent.runtimes.heappe.construction import heappe_runtime

    return heappe_runtime(
        parts.settings, parts.state, logs=parts.logs, clock=parts.clock, identity=parts.identity
    )


def _celery(parts: AgentParts, _: None) -> Runtime:
    from moorage.agent.runtimes.celery.runtime import Application, CeleryRuntime

    settings = parts.settings
    if not settings.celery_app:
        raise ConfigError(
            "agent.runtimes has celery, but agent.celery_app is not set",
            next_step="set agent.celery_app to the application, as in celery -A",
        )

    return CeleryRuntime(
        parts.state / "celery",
        parts.logs,
        Application(
            settings.celery_app, settings.celery_workdir, settings.celery_python or sys.executable
        ),
        log_max_bytes=settings.log_max_bytes,
        log_keep_files=settings.log_keep_files,
    )


process = RuntimePlugin(INTERFACE, _process, in_agent=True)
docker = RuntimePlugin(INTERFACE, _docker, upkeep=(_IMAGE_GC_S, collect_images))
celery = RuntimePlugin(INTERFACE, _celery)
fake = RuntimePlugin(INTERFACE, _fake, in_agent=True)
slurm = RuntimePlugin(INTERFACE, _slurm, site=True)
heappe = RuntimePlugin(INTERFACE, _heappe, site=True)
