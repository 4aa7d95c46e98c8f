"""Custom engine: runs any program. In the command of a program that serves requests or has service
ports, it replaces ``{port}``, ``{host}`` and ``{model}``."""

from __future__ import annotations

from moorage.agent.engines.base import (
    Invocation,
    NodeInfo,
    ReadinessProbe,
    bearer_headers,
    has_placeholders,
    substitute,
)
from moorage.common.model.kernel import KernelSpec

# The main program of a session without a command. Nearly every image has it, and it exits
# immediately on SIGTERM.
IDLE = ("sleep", "infinity")


class CustomEngine:
    name = "custom"
    health_path = ""

    def invocation(
        self, spec: KernelSpec, *, host: str, port: int | str, node: NodeInfo
    ) -> Invocation:
        values = {"port": str(port), "host": host, "model": spec.model}
        command = spec.command or IDLE
        if has_placeholders(spec):
            command = tuple(substitute(word, values) for word in command)

        env = {"HOST": host, "MOORAGE_SECRET": spec.secret} | ({"PORT": str(port)} if port else {})
        probes = (
            (ReadinessProbe("GET", spec.probe_path, headers=bearer_headers(spec)),)
            if spec.probe_path
            else ()
        )
        return Invocation(command, env=env, probes=probes)

    def ready(self, status: int, body: bytes) -> bool:
        return 200 <= status < 300

    def progress(self, log_tail: str) -> str:
        return ""
