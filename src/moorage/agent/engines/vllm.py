"""vLLM's OpenAI server. Facts: it stops cleanly only with ``--shutdown-timeout`` of at least 1."""

from __future__ import annotations

import shlex

from moorage.agent.engines.base import Invocation, Site, embedding_probe, generation_probe, granted_gpus
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import WHOLE_DEVICE

_PARALLEL = (
    *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
    *("--data-parallel-size", "-dp"),
)
_MEMORY = ("--gpu-memory-utilization", "--kv-cache-memory-bytes")
_OF_A_GPU = 90  # per cent
_POOLING = frozenset({"pooling", "embed", "embedding"})


class VllmEngine:
    name = "vllm"

    def launch(self, spec: KernelSpec, *, host: str, port: int, site: Site) -> Invocation:
        """The user's ``args`` come first, so that they cannot move the server to another address."""
        argv = (
            *shlex.split(site.vllm_command),
            *("serve", spec.model, *spec.args, *_shutdown(spec), *_gpus(spec)),
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


def _says(spec: KernelSpec, *options: str) -> bool:
    """Whether the user's own arguments decide it; vLLM takes _ for - in options."""
    return any(word.split("=")[0].replace("_", "-") in options for word in spec.args)


def _gpus(spec: KernelSpec) -> tuple[str, ...]:
    """One process over all GPUs that it was given, and of their memory its part; the user's word goes first.

    Of a part it takes as much as vLLM takes of a whole GPU unasked, so that neighbours fit beside each other
    with what CUDA itself needs. GPUs of unequal parts: vLLM knows one limit, which is the smallest.
    """
    parts, words = list(granted_gpus(spec).values()), list[str]()
    # CUDA shows a process one slice, whatever it was given.
    sliced = any(grant.slot.startswith("cuda-") for grant in spec.devices)
    if len(parts) > 1 and not sliced and not _says(spec, *_PARALLEL):
        words += ["--tensor-parallel-size", str(len(parts))]
    if parts and min(parts) < WHOLE_DEVICE and not _says(spec, *_MEMORY):
        words += ["--gpu-memory-utilization", f"{min(parts) * _OF_A_GPU // 100 / WHOLE_DEVICE:.3f}"]
    return tuple(words)


def _shutdown(spec: KernelSpec) -> tuple[str, ...]:
    """Requests in flight may finish, but it must be through before the grace ends with a kill."""
    if _says(spec, "--shutdown-timeout"):
        return ()
    return "--shutdown-timeout", str(max(1, int(spec.stop_grace_s) - 3))


def _pools(spec: KernelSpec) -> bool:
    return any(word.rpartition("=")[2] in _POOLING for word in spec.args)
