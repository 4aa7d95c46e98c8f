"""llama.cpp through xllamacpp, in a process of its own: the engine that needs no GPU."""

from __future__ import annotations

from moorage.agent.engines.base import Invocation, Site, embedding_probe, generation_probe
from moorage.common.model.kernel import KernelSpec

# Run as a file, not as a module: a module would first import the whole agent (0.8 s). -P keeps this
# folder, with its file names, out of the engine's import path.
SERVER = ("-P", __file__.rpartition("/")[0] + "/llamacpp_server.py")


class LlamaCppEngine:
    name = "llamacpp"

    def launch(self, spec: KernelSpec, *, host: str, port: int, site: Site) -> Invocation:
        """The user's ``args`` come first, so that they cannot move the server to another address."""
        threads = () if _given(spec, "--threads") else ("--threads", str(_threads(spec, site)))
        argv = (
            *(site.python, *SERVER, *spec.args, *threads),
            *("--model", spec.model, "--alias", spec.served_name, "--host", host, "--port", str(port)),
        )
        probe = embedding_probe(spec) if _given(spec, "--embedding") else generation_probe(spec)
        # By environment: an argument is shown to everybody by ps.
        return Invocation(argv, env={"MOORAGE_SECRET": spec.secret}, probes=(probe,))

    def ready(self, status: int, body: bytes) -> bool:
        return status == 200


def _given(spec: KernelSpec, option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in spec.args)


def _threads(spec: KernelSpec, site: Site) -> int:
    """The CPUs that the kernel has; half of the node's if it has none of its own. ggml's threads spin: more
    threads than CPUs make all of them slow."""
    granted = spec.slots.get("cpu", 0) // 1000
    return max(1, min(granted or site.cores // 2, site.cores))
