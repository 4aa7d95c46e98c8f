"""llama.cpp engine: serves a GGUF file with xllamacpp in a separate process. It needs no GPU."""

from __future__ import annotations

from moorage.agent.engines.base import Invocation, NodeInfo, embedding_probe, generation_probe
from moorage.agent.engines.progress import LLAMACPP, read_progress
from moorage.common.model.kernel import KernelSpec

# Run as a file, not as a module, because importing the agent's packages takes 0.8 s. -P keeps this
# directory, and its file names, out of the engine's import path.
SERVER = ("-P", __file__.rpartition("/")[0] + "/llamacpp_server.py")
_EMBEDDING = ("--embedding", "--embeddings", "--rerank", "--reranking")


class LlamaCppEngine:
    name = "llamacpp"
    health_path = "/health"

    def invocation(
        self, spec: KernelSpec, *, host: str, port: int | str, node: NodeInfo
    ) -> Invocation:
        """The server's command. The user's ``args`` come first, so that they cannot change its
        address."""
        threads = (
            () if _has_option(spec, "--threads", "-t") else ("--threads", str(_threads(spec, node)))
        )
        argv = (
            *(node.python, *SERVER, *spec.args, *threads),
            *(
                "--model",
                spec.model,
                "--alias",
                spec.served_name,
                "--host",
                host,
                "--port",
                str(port),
            ),
        )
        probe = embedding_probe(spec) if _has_option(spec, *_EMBEDDING) else generation_probe(spec)

        # Passed in the environment, because ps shows arguments to every user.
        return Invocation(argv, env={"MOORAGE_SECRET": spec.secret}, probes=(probe,))

    def ready(self, status: int, body: bytes) -> bool:
        return status == 200

    def progress(self, log_tail: str) -> str:
        return read_progress(log_tail, LLAMACPP)


def _has_option(spec: KernelSpec, *options: str) -> bool:
    return any(word.partition("=")[0] in options for word in spec.args)


def _threads(spec: KernelSpec, node: NodeInfo) -> int:
    """The number of threads: one for each of the kernel's CPUs, or for half of the node's if it was
    granted none. ggml's threads spin-wait, so having more threads than CPUs slows all of them
    down."""
    granted = spec.slots.get("cpu", 0) // 1000
    return max(1, min(granted or node.cores // 2, node.cores))
