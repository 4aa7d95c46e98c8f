"""vLLM's OpenAI server. Facts: it stops cleanly only with ``--shutdown-timeout`` of at least 1."""

from __future__ import annotations

import shlex

from fairlead.agent.engines.base import Invocation, Site, embedding_probe, generation_probe
from fairlead.common.spec import KernelSpec

_POOLING = frozenset({"pooling", "embed", "embedding"})


class VllmEngine:
    name = "vllm"

    def launch(self, spec: KernelSpec, *, host: str, port: int, site: Site) -> Invocation:
        """The user's ``args`` come first, so that they cannot move the server to another address."""
        argv = (
            *shlex.split(site.vllm_command),
            *("serve", spec.model, *spec.args, *_shutdown(spec)),
            *("--served-model-name", spec.served_name, "--host", host, "--port", str(port)),
        )
        probes = (generation_probe(spec), embedding_probe(spec))
        return Invocation(
            argv,
            # By environment: an argument is shown to everybody by ps.
            env={"VLLM_API_KEY": spec.secret} if spec.secret else {},
            defaults={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
            probes=probes[::-1] if _pools(spec) else probes,
        )

    def ready(self, status: int, body: bytes) -> bool:
        return status == 200


def _shutdown(spec: KernelSpec) -> tuple[str, ...]:
    """Requests in flight may finish, but it must be through before the grace ends with a kill."""
    if any(word.split("=")[0] == "--shutdown-timeout" for word in spec.args):
        return ()
    return "--shutdown-timeout", str(max(1, int(spec.stop_grace_s) - 3))


def _pools(spec: KernelSpec) -> bool:
    return any(word.rpartition("=")[2] in _POOLING for word in spec.args)
