"""Any program: ``{port}``, ``{host}`` and ``{model}`` in its command are replaced, nothing else is."""

from __future__ import annotations

from moorage.agent.engines.base import Invocation, Probe, Site, bearer, fill
from moorage.common.model.kernel import KernelSpec

# A session in which somebody only works. Nearly every image has it, and by SIGTERM it ends at once.
IDLE = ("sleep", "infinity")


class CustomEngine:
    name = "custom"

    def launch(self, spec: KernelSpec, *, host: str, port: int, site: Site) -> Invocation:
        words = {"{port}": str(port), "{host}": host, "{model}": spec.model}
        env = {"HOST": host, "MOORAGE_SECRET": spec.secret} | ({"PORT": str(port)} if port else {})
        probes = (Probe("GET", spec.probe_path, headers=bearer(spec)),) if spec.probe_path else ()
        return Invocation(tuple(fill(word, words) for word in spec.command or IDLE), env=env, probes=probes)

    def ready(self, status: int, body: bytes) -> bool:
        return 200 <= status < 300
