"""vLLM engine: runs vLLM's OpenAI server, which stops cleanly only with a ``--shutdown-timeout`` of
at least 1."""

from __future__ import annotations

import shlex

from moorage.agent.engines.base import (
    Invocation,
    NodeInfo,
    embedding_probe,
    generation_probe,
    granted_gpus,
)
from moorage.agent.engines.progress import VLLM, read_progress
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import WHOLE_DEVICE

_PARALLEL = (
    *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
    *("--data-parallel-size", "-dp"),
)
_MEMORY = ("--gpu-memory-utilization", "--kv-cache-memory-bytes")
_GPU_MEMORY_PERCENT = 90  # vLLM's own default for a whole GPU
_QUIET_PATHS = "--disable-access-log-for-endpoints"
_POOLING = frozenset({"pooling", "embed", "embedding"})


class VllmEngine:
    name = "vllm"
    health_path = "/health"

    def invocation(
        self, spec: KernelSpec, *, host: str, port: int | str, node: NodeInfo
    ) -> Invocation:
        """The server's command. The user's ``args`` come first, so that they cannot change its
        address."""
        argv = (
            *shlex.split(node.vllm_command),
            *(
                "serve",
                spec.model,
                *spec.args,
                *_shutdown_option(spec),
                *_log_option(spec),
                *_gpu_options(spec),
            ),
            *("--served-model-name", spec.served_name, "--host", host, "--port", str(port)),
        )
        probes = (generation_probe(spec), embedding_probe(spec))
        return Invocation(
            argv,
            # Passed in the environment, because ps shows arguments to every user.
            env={"VLLM_API_KEY": spec.secret} if spec.secret else {},
            defaults={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
            probes=probes[::-1] if _is_pooling_model(spec) else probes,
        )

    def ready(self, status: int, body: bytes) -> bool:
        return status == 200

    def progress(self, log_tail: str) -> str:
        return read_progress(log_tail, VLLM)


def _has_option(spec: KernelSpec, *options: str) -> bool:
    """Return whether the user's arguments set one of these options. vLLM accepts _ in place of
    -."""
    return any(word.split("=")[0].replace("_", "-") in options for word in spec.args)


def _gpu_options(spec: KernelSpec) -> tuple[str, ...]:
    """Options for the granted GPUs, unless the user sets them: tensor parallelism over all of them,
    and a memory limit for shares of a GPU.

    vLLM's default fraction is applied to the share, so that kernels on the same GPU leave space for
    CUDA's own memory. vLLM has one limit for all GPUs, so the smallest share determines it.
    """
    shares = list(granted_gpus(spec).values())
    options = list[str]()

    # CUDA shows a process only one MIG slice, even if it was granted several.
    sliced = any(grant.slot.startswith("cuda-") for grant in spec.devices)
    if len(shares) > 1 and not sliced and not _has_option(spec, *_PARALLEL):
        options += ["--tensor-parallel-size", str(len(shares))]

    if shares and min(shares) < WHOLE_DEVICE and not _has_option(spec, *_MEMORY):
        options += [
            "--gpu-memory-utilization",
            f"{min(shares) * _GPU_MEMORY_PERCENT // 100 / WHOLE_DEVICE:.3f}",
        ]

    return tuple(options)


def _shutdown_option(spec: KernelSpec) -> tuple[str, ...]:
    """An option that lets requests in flight finish before the kernel is killed at the end of the
    grace period."""
    if _has_option(spec, "--shutdown-timeout"):
        return ()
    return "--shutdown-timeout", str(max(1, int(spec.stop_grace_s) - 3))


def _log_option(spec: KernelSpec) -> tuple[str, ...]:
    """An option that keeps our own requests, every few seconds, out of the log. Versions of vLLM
    with ``--shutdown-timeout`` have it."""
    if _has_option(spec, _QUIET_PATHS, "--log-config-file"):
        return ()
    return _QUIET_PATHS, "/health,/metrics"


def _is_pooling_model(spec: KernelSpec) -> bool:
    return any(word.rpartition("=")[2] in _POOLING for word in spec.args)
