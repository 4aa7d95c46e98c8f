"""The tracer of one component, as its settings specify."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.model.errors import ConfigError
from moorage.common.telemetry.tracer import Tracer

log = structlog.get_logger("moorage.telemetry")


def tracer_for(
    settings: TelemetrySettings,
    component: str,
    clock: Clock,
    *,
    instance: str = "",
    version: str = "",
) -> Tracer | None:
    """Create the tracer for ``component``, such as ``proxy``; None if tracing is off. ``instance``:
    its id.

    Raises ``ConfigError`` if the packages are not installed.
    """
    endpoint = settings.target
    if endpoint is None:
        return None

    try:
        from moorage.common.telemetry.otlp import SpanQueue
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise

        raise ConfigError(
            f"telemetry.endpoint = {endpoint!r} requires the package {error.name}",
            next_step=(
                "pip install 'moorage[otel]', or unset telemetry.endpoint and "
                "OTEL_EXPORTER_OTLP_ENDPOINT"
            ),
        ) from None

    resource: Mapping[str, str] = {
        "service.name": settings.service_name or f"moorage-{component}",
        "service.namespace": "moorage",
        "service.instance.id": instance or f"{socket.gethostname()}-{os.getpid()}",
        "service.version": version,
        "host.name": socket.gethostname(),
        "moorage.component": component,
    }
    queue = SpanQueue(endpoint, resource, settings.header_fields)
    log.info("traces are exported", endpoint=endpoint, service=resource["service.name"])
    return Tracer(
        queue,
        clock,
        sampler=settings.sampler,
        ratio=settings.sampler_arg,
        accepts_parents=settings.accept_traceparent,
    )
