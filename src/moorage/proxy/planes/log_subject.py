"""The subject of a request's log lines, the same in every data plane."""

from __future__ import annotations

from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.traced_flow import TracedFlow


class FlowSubject:
    """The ``LogSubject`` of a request."""

    def __init__(self, flow: RequestFlow) -> None:
        self._flow = flow

    def log_fields(self) -> dict[str, str]:
        return log_fields(self._flow)


def log_fields(flow: RequestFlow) -> dict[str, str]:
    target = flow.target
    return {
        "trace_id": flow.trace if isinstance(flow, TracedFlow) else "",
        "request_id": flow.request_id,
        "endpoint": flow.model,
        "session_id": "" if target is None else target.session_id,
        "kernel_id": "" if target is None else target.kernel_id,
    }
