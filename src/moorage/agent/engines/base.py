"""What a kernel's main program is, how it is called, and when it is ready. Pure: values in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moorage.common.model.ids import DeviceId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

# What the agent must not hand down: its own settings, database secrets, and what a service manager told it.
_WITHHELD_PREFIXES = ("MOORAGE_", "LISTEN_", "WATCHDOG_")
_WITHHELD = frozenset(
    {
        "PGPASSWORD",
        "PGPASSFILE",
        "DATABASE_URL",
        "NOTIFY_SOCKET",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "MAINPID",
    }
)


@dataclass(frozen=True, slots=True)
class Site:
    """What engines need to know of their node. ``cores``: CPUs that the agent may use."""

    python: str = "python3"
    vllm_command: str = "vllm"
    cores: int = 1
    home: str = "/"
    user_base: str = ""  # where Python keeps packages installed for one user
    vllm_image: str = ""  # of containers that serve with vLLM and name none


@dataclass(frozen=True, slots=True)
class Probe:
    """One HTTP request. A GET has no ``body``; ``path`` begins with a slash."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invocation:
    """``defaults`` may be overridden by the user's ``env``, ``env`` may not.

    ``probes``: ready when one is answered well; the next is asked only where the server says that it has no
    such route. Empty: ready as soon as the process runs.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()


class Engine(Protocol):
    name: str

    def launch(self, spec: KernelSpec, *, host: str, port: int, site: Site) -> Invocation: ...

    def ready(self, status: int, body: bytes) -> bool:
        """Whether this answer to a probe means that requests are served now."""
        ...


def needs_port(spec: KernelSpec) -> bool:
    """Batch work gets a port only if it names one."""
    asks = any("{port}" in word for word in spec.command)
    return spec.answers_requests or spec.session_type is not SessionType.BATCH or asks


def visible_devices(spec: KernelSpec) -> str:
    """``CUDA_VISIBLE_DEVICES``: the granted GPUs by id; empty hides all, so that a CPU kernel takes none."""
    return ",".join(granted_gpus(spec))


def granted_gpus(spec: KernelSpec) -> dict[DeviceId, int]:
    """How much of each GPU, in 1/1000, in the order of the plan."""
    # A slice of a GPU is a slot of its own, like cuda-1g10gb.device.
    families, granted = ("cuda.", "cuda-"), dict[DeviceId, int]()
    for grant in spec.devices:
        if grant.slot.startswith(families) and grant.amount:
            granted[grant.device_id] = granted.get(grant.device_id, 0) + grant.amount
    return granted


def environment(
    base: Mapping[str, str], spec: KernelSpec, invocation: Invocation, *, work_dir: str, site: Site
) -> dict[str, str]:
    """The whole environment of a kernel: the agent's own, less what is its alone, then engine, user and ours.

    Caches stay those of the agent's user although HOME is the kernel's own: a model is downloaded once.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name not in _WITHHELD and not name.startswith(_WITHHELD_PREFIXES)
    }
    cache = f"{site.home.rstrip('/')}/.cache"
    kept.setdefault("XDG_CACHE_HOME", cache)
    kept.setdefault("HF_HOME", f"{kept['XDG_CACHE_HOME']}/huggingface")
    if site.user_base:
        kept.setdefault("PYTHONUSERBASE", site.user_base)
    ours = {"HOME": work_dir, "PWD": work_dir}
    return kept | invocation.defaults | spec.env | invocation.env | ours | _facts(spec)


def contained_environment(spec: KernelSpec, invocation: Invocation) -> dict[str, str]:
    """What a container's environment has beside that of its image."""
    return invocation.defaults | spec.env | invocation.env | _facts(spec)


def _facts(spec: KernelSpec) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": visible_devices(spec),
        "MOORAGE_KERNEL_ID": spec.kernel_id,
        "MOORAGE_SESSION_ID": spec.session_id,
        "MOORAGE_SESSION_NAME": spec.session_name,
        "MOORAGE_SESSION_TYPE": spec.session_type.value,
    }


def bearer(spec: KernelSpec) -> dict[str, str]:
    return {"Authorization": f"Bearer {spec.secret}"} if spec.secret else {}


def fill(word: str, words: Mapping[str, str]) -> str:
    """A word of a command with each name of ``words`` replaced."""
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def generation_probe(spec: KernelSpec) -> Probe:
    """One real token: a server that answers it has its weights loaded and its kernels compiled."""
    body = {"model": spec.served_name, "prompt": "Hi", "max_tokens": 1, "temperature": 0}
    return _post(spec, "/v1/completions", body)


def embedding_probe(spec: KernelSpec) -> Probe:
    return _post(spec, "/v1/embeddings", {"model": spec.served_name, "input": "Hi"})


def _post(spec: KernelSpec, path: str, body: dict[str, object]) -> Probe:
    headers = {"Content-Type": "application/json", **bearer(spec)}
    return Probe("POST", path, json.dumps(body).encode(), headers)


def is_path(model: str) -> bool:
    """Whether ``model`` means a file or directory of the node rather than a name on a hub."""
    return model.startswith(("/", ".", "~")) or model.lower().endswith(".gguf")
