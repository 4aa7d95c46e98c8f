"""Translates between kernels and the Docker API: container options, rights and limits, and states.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from moorage.agent.runtimes.base import (
    MODELS,
    OVERLAY_INTERFACE,
    PROGRESS_FOLDER,
    WORKSPACE,
    Launch,
    RuntimeObservation,
)
from moorage.agent.runtimes.docker.cdi import CdiDevices, device_name
from moorage.common.model.status import ObservedState

# The minimum that the engine accepts.
_MIN_MEMORY = 6 * 1024**2
_MIN_NANO_CPUS = 10_000_000
# Exit codes above 128 mean signals. The engine and its init follow this shell convention.
_SIGNAL_BASE = 128
_MAX_SIGNAL = 31
# Value of ``ContainerRules.network``: one of the agent's networks, on which containers cannot reach
# each other.
ISOLATED = "isolated"
# Runs before the kernel's program, because a container must be running before it can get an
# interface. An interface that is not up has no readable carrier.
_WAIT = (
    f"n=0; until {{ read up < /sys/class/net/{OVERLAY_INTERFACE}/carrier; }} 2> /dev/null; do "
    "n=$((n + 1)); "
    'if test $n -gt 600; then echo "the network of the cluster did not come up" >&2; exit 125; fi; '
    'sleep 0.05; done; exec "$@"'
)
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The node's settings for all its containers. ``mounts``: directories mounted read-only into
    every container, at the same path. ``user``: ``uid[:gid]``, or "" for the image's user."""

    images: tuple[str, ...] = ("*",)
    pull: Literal["never", "if-missing", "always"] = "if-missing"
    mounts: tuple[str, ...] = ()
    user: str = ""
    network: str = ISOLATED
    multi_node: Literal["wireguard", "host", "off"] = "wireguard"
    capabilities: tuple[str, ...] = ()
    pids: int = 4096
    shm_bytes: int = 1024**3
    log_max_bytes: int = 10 * 1024**2
    log_keep_files: int = 3
    gpus: Literal["auto", "nvidia", "cdi"] = "auto"


def is_image_allowed(image: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a pattern matches the name as written, or the full name with its registry."""
    return any(
        fnmatchcase(name, pattern) for name in (image, full_name(image)) for pattern in patterns
    )


def full_name(image: str) -> str:
    """An image's full name: ``docker.io/library/python:3`` for ``python:3``."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def is_outside(path: str, mounts: tuple[str, ...]) -> bool:
    """Return whether an absolute path without symbolic links is outside all of the directories."""
    return not any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in mounts)


def host_config(
    launch: Launch,
    rules: ContainerRules,
    address: str,
    network: str,
    *,
    cdi: CdiDevices | None = None,
) -> dict[str, Any]:
    """Limits and rights: the arguments for the SDK's ``create_host_config``. ``address``: the IP
    address on which ports are published, unless the kernel is on the host network. ``cdi``: the
    GPUs that the engine knows through CDI."""
    config: dict[str, Any] = {
        "init": True,  # as process 1, a program would ignore SIGTERM and not reap orphans
        "network_mode": network,
        "cap_drop": ["ALL"],
        "cap_add": list(rules.capabilities),
        "security_opt": ["no-new-privileges"],
        "privileged": False,
        "pids_limit": rules.pids,
        "shm_size": rules.shm_bytes,
        "log_config": {
            "type": "json-file",
            "config": {
                "max-size": str(rules.log_max_bytes),
                "max-file": str(rules.log_keep_files + 1),
            },
        },
        "mounts": [
            {"Type": "bind", "Source": root, "Target": root, "ReadOnly": True}
            for root in rules.mounts
        ],
    }
    published = {app.inner: app.port for app in launch.apps}
    if launch.port:
        published[launch.port] = launch.port
    if not launch.network:
        # Outside the cluster's network, the engine does not resolve its hostnames.
        config["extra_hosts"] = dict(launch.hosts)

    if published and network != "host":
        config["port_bindings"] = {
            f"{inner}/tcp": (address, port) for inner, port in published.items()
        }

    if mem := launch.slots.get("mem"):
        # The limits with and without swap are equal, so there is no swap.
        config["mem_limit"] = config["memswap_limit"] = max(mem, _MIN_MEMORY)
    if cpu := launch.slots.get("cpu"):
        config["nano_cpus"] = max(cpu * 1_000_000, _MIN_NANO_CPUS)

    if launch.model_folder:
        # Mount only this model from the cache, because other models may belong to other users, and
        # tokens are stored beside them.
        target = f"{MODELS}/{launch.model_folder.rpartition('/')[2]}"
        mount = {"Type": "bind", "Source": launch.model_folder, "Target": target}
        config["mounts"].append(mount | {"ReadOnly": True})

    if launch.workspace:
        config["mounts"].append({"Type": "bind", "Source": launch.workspace, "Target": WORKSPACE})

    for path, source in launch.inputs.items():
        read_only = {"Target": f"{WORKSPACE}/{path}", "ReadOnly": True}
        config["mounts"].append({"Type": "bind", "Source": source} | read_only)

    if launch.progress:
        config["mounts"].append(
            {"Type": "bind", "Source": launch.progress, "Target": PROGRESS_FOLDER}
        )

    if launch.devices:
        config["device_requests"] = [_device_request(launch, rules, cdi)]

    return config


def uses_cdi(rules: ContainerRules, cdi: CdiDevices | None) -> bool:
    return rules.gpus == "cdi" or (rules.gpus == "auto" and bool(cdi))


def _device_request(
    launch: Launch, rules: ContainerRules, cdi: CdiDevices | None
) -> dict[str, Any]:
    if uses_cdi(rules, cdi):
        names = [
            device_name(device, launch.places.get(device), cdi or {}) for device in launch.devices
        ]
        return {"Driver": "cdi", "DeviceIDs": names}
    return {"Driver": "nvidia", "DeviceIDs": list(launch.devices), "Capabilities": [["gpu"]]}


def container_config(
    launch: Launch,
    rules: ContainerRules,
    labels: Mapping[str, str],
    network: str,
    *,
    cdi: CdiDevices | None = None,
) -> dict[str, Any]:
    """The arguments of the SDK's ``create_container`` except for the host config."""
    # GPU images set NVIDIA_VISIBLE_DEVICES to all. It is overridden with the granted GPUs, or with
    # "void" under CDI, because there the device request names the GPUs and the NVIDIA hook must not
    # add any.
    visible_ids = () if uses_cdi(rules, cdi) else launch.devices
    visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(visible_ids) or "void"}
    config: dict[str, Any] = {
        "image": launch.image,
        "name": container_name(launch.kernel_id),
        # The command replaces the entry point, so that it does not become an argument of the
        # image's program.
        "entrypoint": list(launch.argv)
        if launch.overlay is None
        else _awaiting_overlay(launch.argv),
        "command": [],
        "environment": launch.env | visible,
        "labels": dict(labels),
        "ports": sorted(
            {*([launch.port] if launch.port else []), *(app.inner for app in launch.apps)}
        ),
        "user": launch.user or rules.user or None,
        # Off, because the agent probes readiness itself, and each of the image's health checks
        # would start a program.
        "healthcheck": {"Test": ["NONE"]},
    }
    if launch.workspace:
        config["working_dir"] = WORKSPACE
    if launch.hostname:
        config["hostname"] = launch.hostname
    if launch.network:
        config["networking_config"] = {"EndpointsConfig": {network: {"Aliases": [launch.hostname]}}}

    return config


def _awaiting_overlay(argv: Sequence[str]) -> list[str]:
    """``argv`` as a command that first waits for the interface."""
    return ["sh", "-c", _WAIT, "sh", *argv]


def container_name(kernel_id: str) -> str:
    """The name of a kernel's container. Names are unique per engine, so a kernel cannot be started
    twice (decision 9)."""
    return f"moorage-{kernel_id}"


def parse_state(state: Mapping[str, Any]) -> RuntimeObservation:
    """Parse the ``State`` field of an inspected container."""
    status = state.get("Status", "")
    if status in ("running", "paused", "restarting"):
        return RuntimeObservation(ObservedState.RUNNING)
    if status == "created":
        return RuntimeObservation(ObservedState.CREATING)

    if status not in ("exited", "dead"):
        return RuntimeObservation(
            ObservedState.UNKNOWN, detail=f"the engine reports the unknown status {status!r}"
        )

    if state.get("StartedAt") == _NEVER:
        return RuntimeObservation(
            ObservedState.EXITED, never_started=True, detail=str(state.get("Error", ""))
        )

    code = int(state.get("ExitCode", 0))
    if _SIGNAL_BASE < code <= _SIGNAL_BASE + _MAX_SIGNAL:
        code = _SIGNAL_BASE - code

    return RuntimeObservation(ObservedState.EXITED, code, oom=bool(state.get("OOMKilled")))
