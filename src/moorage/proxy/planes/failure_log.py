"""Log lines about failed replicas, the same in every data plane.

An overloaded engine rejects every request, which the metric counts, so it is not logged.
"""

from __future__ import annotations

import structlog

from moorage.common.telemetry.log_context import LOG_SUBJECT
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.retry import Failure
from moorage.proxy.planes.log_subject import FlowSubject

log = structlog.get_logger("moorage.proxy")


def log_failure(flow: RequestFlow, failure: Failure, detail: str) -> None:
    """Log a failure. Call it before the flow learns about the failure."""
    # This runs in callbacks of the replica's connection, which serves requests one after another.
    LOG_SUBJECT.set(FlowSubject(flow))
    log.warning(
        "replica failed",
        model=flow.model,
        kernel=flow.target.kernel_id if flow.target is not None else "",
        kind=failure.value,
        detail=detail,
        request_id=flow.request_id,
    )
