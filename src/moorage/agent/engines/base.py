"""Engine interface: the command, environment and readiness probes of a kernel's main program.
Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from moorage.common.model.ids import DeviceId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import CPU_SLOT
from moorage.common.model.status import SessionType

# The agent's variables that kernels inherit, none of which may hold a secret. ``agent.process_env``
# adds others.
_INHERITED = (
    *(
        "PATH",
        "LANG",
        "LANGUAGE",
        "LC_*",
        "TZ",
        "TERM",
        "SHELL",
        "USER",
        "LOGNAME",
        "LD_LIBRARY_PATH",
    ),
    *("HF_ENDPOINT", "HF_HUB_OFFLINE"),
    *(
        "CUDA_HOME",
        "CUDA_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ),
)
# The agent user's paths, which a kernel with its own user cannot use.
_OF_USER = ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "PYTHONUSERBASE")
# The name of a kernel's user without a name on the node.
UNNAMED_USER = "moorage"
_USER_NAMES = ("USER", "LOGNAME")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Facts about the node that engines need. ``cores``: CPUs that the agent may use. ``user``: the
    name of the agent's user."""

    python: str = "python3"
    vllm_command: str = "vllm"
    cores: int = 1
    home: str = "/"
    user: str = UNNAMED_USER
    user_base: str = ""  # where Python installs packages for a single user
    vllm_image: str = ""  # default image for containers that serve with vLLM
    inherited: tuple[str, ...] = ()  # patterns for variables that kernels inherit from the agent


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """One HTTP request that tests readiness. A GET has no ``body``. ``path`` starts with a
    slash."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invocation:
    """Invocation of a kernel's main program. The user's ``env`` overrides ``defaults``, but not
    ``env``.

    ``probes``: the kernel is ready when one of them succeeds. The next one is tried only if the
    server does not have the route. Without probes, the kernel is ready as soon as its process runs.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    probes: tuple[ReadinessProbe, ...] = ()


class Engine(Protocol):
    """``health_path``: a route that answers whether the engine works, and that its log does not
    mention; "" if the engine has none."""

    name: str
    health_path: str

    def invocation(
        self, spec: KernelSpec, *, host: str, port: int | str, node: NodeInfo
    ) -> Invocation:
        """A kernel's invocation. ``port``: a placeholder if the port is not known yet; 0 for no
        port."""
        ...

    def ready(self, status: int, body: bytes) -> bool:
        """Return whether this response to a probe means that the engine serves requests."""
        ...

    def progress(self, log_tail: str) -> str:
        """What the engine is doing while it loads, like ``loading weights: 50%``; empty if its log
        does not show it."""
        ...


def needs_port(spec: KernelSpec) -> bool:
    """Batch kernels get a port only if they serve requests or their command uses one."""
    uses_port = has_placeholders(spec) and any(
        found["name"] for word in spec.command for found in _placeholders(["port"]).finditer(word)
    )
    return spec.answers_requests or spec.session_type is not SessionType.BATCH or uses_port


def has_placeholders(spec: KernelSpec) -> bool:
    """Whether placeholders in the kernel's command are replaced. Every other command is passed
    unchanged, because braces also belong to JSON, templates and programming languages."""
    return spec.answers_requests or bool(spec.ports)


def granted_gpus(spec: KernelSpec) -> dict[DeviceId, int]:
    """The share of each granted GPU, in 1/1000, in the plan's order."""
    # A MIG slice has its own slot, like cuda-1g10gb.device.
    families = ("cuda.", "cuda-")
    granted = dict[DeviceId, int]()
    for grant in spec.devices:
        is_gpu = grant.slot.startswith(families) and not grant.device_id.startswith(CPU_SLOT)
        if is_gpu and grant.amount:
            granted[grant.device_id] = granted.get(grant.device_id, 0) + grant.amount
    return granted


def environment(
    base: Mapping[str, str],
    spec: KernelSpec,
    invocation: Invocation,
    *,
    work_dir: str,
    node: NodeInfo,
    own_user: bool = False,
) -> dict[str, str]:
    """The environment of a process kernel: inherited variables, then the engine's, the user's and
    ours. The vendors of the kernel's devices add theirs.

    Caches stay in the directories of the agent's user although HOME is the kernel's own, so that a
    model is downloaded once. ``own_user``: the kernel has its own uid, and caches in its HOME.
    """
    patterns = (*_INHERITED, *node.inherited, *(() if own_user else _OF_USER))
    inherited = {
        name: value
        for name, value in base.items()
        if not name.startswith("MOORAGE_")
        and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if own_user or not spec.env.keys().isdisjoint(_USER_NAMES):
        inherited = {name: inherited[name] for name in inherited if name not in _USER_NAMES}
    own_name = UNNAMED_USER if own_user else node.user
    inherited |= missing_names(inherited | spec.env, own_name)

    if not own_user:
        inherited.setdefault("XDG_CACHE_HOME", f"{node.home.rstrip('/')}/.cache")
        inherited.setdefault("HF_HOME", f"{inherited['XDG_CACHE_HOME']}/huggingface")
        if node.user_base:
            inherited.setdefault("PYTHONUSERBASE", node.user_base)

    # The agent's interpreter, which lets a session run `moorage` on its node.
    ours = {"HOME": work_dir, "PWD": work_dir, "MOORAGE_PYTHON": node.python}
    return (
        inherited | invocation.defaults | spec.env | invocation.env | ours | _kernel_variables(spec)
    )


def missing_names(env: Mapping[str, str], user: str) -> dict[str, str]:
    """``USER`` and ``LOGNAME``, if they are missing: programs look up the uid without them, and
    fail if it has no name. ``user``: the name if the environment has neither."""
    name = env.get("USER") or env.get("LOGNAME") or user
    return {variable: name for variable in _USER_NAMES if not env.get(variable)}


def contained_environment(spec: KernelSpec, invocation: Invocation) -> dict[str, str]:
    """A container's variables in addition to those of its image."""
    return invocation.defaults | spec.env | invocation.env | _kernel_variables(spec)


def _kernel_variables(spec: KernelSpec) -> dict[str, str]:
    return {
        "MOORAGE_KERNEL_ID": spec.kernel_id,
        "MOORAGE_SESSION_ID": spec.session_id,
        "MOORAGE_SESSION_NAME": spec.session_name,
        "MOORAGE_SESSION_TYPE": spec.session_type.value,
    }


def bearer_headers(spec: KernelSpec) -> dict[str, str]:
    return {"Authorization": f"Bearer {spec.secret}"} if spec.secret else {}


def substitute(word: str, values: Mapping[str, str]) -> str:
    """A command argument with each placeholder in ``values`` replaced: ``{port}`` by the value of
    ``port``. ``{{port}}`` stands for the text ``{port}``; all other braces stay. Values are not
    searched for placeholders."""
    return _placeholders(values).sub(
        lambda found: values[found["name"]] if found["name"] else found[0][1:-1], word
    )


def _placeholders(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern whose group ``name`` is empty for an escaped placeholder."""
    any_name = "|".join(re.escape(name) for name in names)
    return re.compile(rf"\{{\{{(?:{any_name})\}}\}}|\{{(?P<name>{any_name})\}}")


def generation_probe(spec: KernelSpec) -> ReadinessProbe:
    """A probe that generates one token. A server that answers has loaded its weights and compiled
    its CUDA kernels."""
    body = {"model": spec.served_name, "prompt": "Hi", "max_tokens": 1, "temperature": 0}
    return _post(spec, "/v1/completions", body)


def embedding_probe(spec: KernelSpec) -> ReadinessProbe:
    return _post(spec, "/v1/embeddings", {"model": spec.served_name, "input": "Hi"})


def _post(spec: KernelSpec, path: str, body: dict[str, object]) -> ReadinessProbe:
    headers = {"Content-Type": "application/json", **bearer_headers(spec)}
    return ReadinessProbe("POST", path, json.dumps(body).encode(), headers)


def is_path(model: str) -> bool:
    """Return whether ``model`` is a file or directory on the node rather than a name on a hub."""
    return model.startswith(("/", ".", "~")) or model.lower().endswith(".gguf")
