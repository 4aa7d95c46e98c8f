"""Custom engine: runs any program, after replacing ``{port}``, ``{host}`` and ``{model}`` in its
command."""

from __future__ import annotations

from moorage.agent.engines.base import (
    Invocation,
    NodeInfo,
    ReadinessProbe,
    bearer_headers,
    substitute,
)
from moorage.common.model.kernel import KernelSpec

# The main program of a session without a command. Nearly every image has it, and it exits
# immediately on SIGTERM.
IDLE = ("sleep", "infinity")


class CustomEngine:
    name = "custom"

    def invocation(
        self, spec: KernelSpec, *, host: str, port: int | str, node: NodeInfo
    ) -> Invocation:
        values = {"{port}": str(port), "{host}": host, "{model}": spec.model}
        env = {"HOST": host, "MOORAGE_SECRET": spec.secret} | ({"PORT": str(port)} if port else {})
        probes = (
            (ReadinessProbe("GET", spec.probe_path, headers=bearer_headers(spec)),)
            if spec.probe_path
            else ()
        )
        return Invocation(
            tuple(substitute(word, values) for word in spec.command or IDLE), env=env, probes=probes
        )

    def ready(self, status: int, body: bytes) -> bool:
        return 200 <= status < 300

    def progress(self, log_tail: str) -> str:
        return ""
