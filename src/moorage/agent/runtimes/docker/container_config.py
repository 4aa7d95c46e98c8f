"""What a container is given and refused, and what the engine's words mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from moorage.agent.runtimes.base import WORKSPACE, Launch, RuntimeObservation
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

# The least that the engine takes.
_LEAST_MEMORY, _LEAST_NANO_CPUS = 6 * 1024**2, 10_000_000
# A shell's way to tell a signal; the engine and its init use it too.
_SIGNALLED, _LAST_SIGNAL = 128, 31
# Of ``ContainerRules.network``: the agent's own, on which containers do not reach each other.
ISOLATED = "isolated"
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The node's settings for all its containers. ``mounts``: directories that every container sees,
    read-only, at the same path. ``user``: ``uid[:gid]``, "" for the image's own. ``model_cache``: a directory
    that some see at ``CACHE``; "" for none."""

    images: tuple[str, ...] = ("*",)
    pull: Literal["never", "if-missing", "always"] = "if-missing"
    mounts: tuple[str, ...] = ()
    user: str = ""
    network: str = ISOLATED
    multi_node: Literal["off", "host"] = "off"
    capabilities: tuple[str, ...] = ()
    pids: int = 4096
    shm_bytes: int = 1024**3
    log_max_bytes: int = 10 * 1024**2
    log_keep_files: int = 3
    model_cache: str = ""
    cache_writable: bool = True
    gpus: Literal["auto", "nvidia", "cdi"] = "auto"


CACHE = "/moorage/cache"
_CDI_KIND = "nvidia.com/gpu"


def lists_gpus(info: Mapping[str, Any]) -> bool:
    """Whether the engine's ``/info`` has found NVIDIA GPUs by CDI; engines before 28.2 do not say."""
    found = info.get("DiscoveredDevices") or ()
    return any(one.get("Source") == "cdi" and str(one.get("ID")).startswith(f"{_CDI_KIND}=") for one in found)


def cache_env(rules: ContainerRules) -> dict[str, str]:
    """Where the programs of a container find the node's model cache; its user may say otherwise."""
    env = {"HF_HOME": f"{CACHE}/huggingface", "VLLM_CACHE_ROOT": f"{CACHE}/vllm"}
    # A hub's client writes locks even for what is there, and fails where it cannot.
    return env if rules.cache_writable else env | {"HF_HUB_OFFLINE": "1"}


def image_allowed(image: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern matches the name as it is written, or written out with its registry."""
    return any(fnmatchcase(name, pattern) for name in (image, full_name(image)) for pattern in patterns)


def full_name(image: str) -> str:
    """``python:3`` is ``docker.io/library/python:3``."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def outside(path: str, mounts: tuple[str, ...]) -> bool:
    """Whether an absolute path, links resolved, is in none of the directories."""
    return not any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in mounts)


def host_config(
    launch: Launch, rules: ContainerRules, address: str, network: str, cdi: bool = False
) -> dict[str, Any]:
    """Limits and rights, as the SDK's ``create_host_config`` takes them. ``address``: the IP on which the
    kernel's ports are published, on all networks but the node's own. ``cdi``: the engine lists its GPUs by
    CDI."""
    config: dict[str, Any] = {
        "init": True,  # a program that is process 1 is deaf to SIGTERM, and nobody reaps what it leaves
        "network_mode": network,
        "cap_drop": ["ALL"],
        "cap_add": list(rules.capabilities),
        "security_opt": ["no-new-privileges"],
        "privileged": False,
        "pids_limit": rules.pids,
        "shm_size": rules.shm_bytes,
        "log_config": {
            "type": "json-file",
            "config": {"max-size": str(rules.log_max_bytes), "max-file": str(rules.log_keep_files + 1)},
        },
        "mounts": [
            {"Type": "bind", "Source": root, "Target": root, "ReadOnly": True} for root in rules.mounts
        ],
    }
    published = {app.inner: app.port for app in launch.apps}
    if launch.port:
        published[launch.port] = launch.port
    if network == "host":
        # The names of a cluster are not looked up by the engine there.
        config["extra_hosts"] = dict(launch.hosts)
    elif published:
        config["port_bindings"] = {f"{inner}/tcp": (address, port) for inner, port in published.items()}
    if mem := launch.slots.get("mem"):
        # As much with swap as without: none.
        config["mem_limit"] = config["memswap_limit"] = max(mem, _LEAST_MEMORY)
    if cpu := launch.slots.get("cpu"):
        config["nano_cpus"] = max(cpu * 1_000_000, _LEAST_NANO_CPUS)
    if launch.model_cache and rules.model_cache:
        mount = {"Type": "bind", "Source": rules.model_cache, "Target": CACHE}
        config["mounts"].append(mount | {"ReadOnly": not rules.cache_writable})
    if launch.workspace:
        config["mounts"].append({"Type": "bind", "Source": launch.workspace, "Target": WORKSPACE})
    if launch.devices:
        config["device_requests"] = [_gpus(launch.devices, by_cdi(rules, cdi))]
    return config


def by_cdi(rules: ContainerRules, cdi: bool) -> bool:
    return rules.gpus == "cdi" or (rules.gpus == "auto" and cdi)


def _gpus(devices: tuple[str, ...], by_cdi: bool) -> dict[str, Any]:
    if by_cdi:
        return {"Driver": "cdi", "DeviceIDs": [f"{_CDI_KIND}={device}" for device in devices]}
    return {"Driver": "nvidia", "DeviceIDs": list(devices), "Capabilities": [["gpu"]]}


def container_config(
    launch: Launch, rules: ContainerRules, labels: Mapping[str, str], network: str, cdi: bool = False
) -> dict[str, Any]:
    """The rest, as the SDK's ``create_container`` takes it."""
    # An image made for GPUs asks for all of them by its own NVIDIA_VISIBLE_DEVICES. With CDI, whoever reads
    # that must add nothing to what was asked for.
    named = () if by_cdi(rules, cdi) else launch.devices
    visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(named) or "void"}
    cache = cache_env(rules) if launch.model_cache and rules.model_cache else {}
    found: dict[str, Any] = {
        "image": launch.image,
        "name": container_name(launch.kernel_id),
        # What was asked for is what runs: not an argument to whatever the image starts by itself.
        "entrypoint": list(launch.argv),
        "command": [],
        "environment": cache | launch.env | visible,
        "labels": dict(labels),
        "ports": sorted({*([launch.port] if launch.port else []), *(app.inner for app in launch.apps)}),
        "user": launch.user or rules.user or None,
        # Readiness is asked by us; each look of the image's own would be a program started inside.
        "healthcheck": {"Test": ["NONE"]},
    }
    if launch.workspace:
        found["working_dir"] = WORKSPACE
    if launch.hostname:
        found["hostname"] = launch.hostname
    if launch.network:
        found["networking_config"] = {"EndpointsConfig": {network: {"Aliases": [launch.hostname]}}}
    return found


def container_name(kernel_id: str) -> str:
    """The engine gives a name once: the same kernel cannot be started twice."""
    return f"moorage-{kernel_id}"


def look(state: Mapping[str, Any]) -> RuntimeObservation:
    """From ``State`` of the engine's answer about a container."""
    status = state.get("Status", "")
    if status in ("running", "paused", "restarting"):
        return RuntimeObservation(ObservedState.RUNNING)
    if status == "created":
        return RuntimeObservation(ObservedState.CREATING)
    if status not in ("exited", "dead"):
        return RuntimeObservation(ObservedState.UNKNOWN, detail=f"the engine says that it is {status!r}")
    if state.get("StartedAt") == _NEVER:
        return RuntimeObservation(ObservedState.EXITED, refused=True, detail=str(state.get("Error", "")))
    code = int(state.get("ExitCode", 0))
    if _SIGNALLED < code <= _SIGNALLED + _LAST_SIGNAL:
        code = _SIGNALLED - code
    return RuntimeObservation(ObservedState.EXITED, code, oom=bool(state.get("OOMKilled")))


_TOOLKIT = "install the NVIDIA container toolkit there"
# Parts of the engine's sentences, in small letters: it tells most of these apart by no status.
_MEANINGS: tuple[tuple[str, Reason, str], ...] = (
    ("no such image", Reason.IMAGE_MISSING, "check its name, or pull it on that node"),
    ("unresolvable cdi devices", Reason.NO_NVIDIA_RUNTIME, "run `nvidia-ctk cdi generate` on that node"),
    ("cdi device injection failed", Reason.NO_NVIDIA_RUNTIME, "run `nvidia-ctk cdi generate` on that node"),
    ("could not select device driver", Reason.NO_NVIDIA_RUNTIME, _TOOLKIT),
    ("unknown runtime specified nvidia", Reason.NO_NVIDIA_RUNTIME, _TOOLKIT),
    ("nvidia-container-cli", Reason.NO_NVIDIA_RUNTIME, "check nvidia-smi and the driver on that node"),
    ("port is already allocated", Reason.PORT_TAKEN, "see who listens on that node"),
    ("address already in use", Reason.PORT_TAKEN, "see who listens on that node"),
    ("range of cpus is from", Reason.LIMIT_REFUSED, "ask for no more CPUs than the node has"),
    ("minimum memory limit", Reason.LIMIT_REFUSED, "ask for more memory"),
    ("kernel memory", Reason.LIMIT_REFUSED, "ask for another amount of memory"),
    ("inter-container", Reason.NO_NETWORK, "`modprobe br_netfilter` there, or set agent.docker_network"),
    ("br_netfilter", Reason.NO_NETWORK, "`modprobe br_netfilter` there, or set agent.docker_network"),
    ("address pool", Reason.NO_NETWORK, "add to default-address-pools in that engine's daemon.json"),
    ("address pools", Reason.NO_NETWORK, "add to default-address-pools in that engine's daemon.json"),
    ("no space left on device", Reason.DISK_FULL, "free space where that node's Docker keeps its data"),
    ("disk quota exceeded", Reason.DISK_FULL, "free space where that node's Docker keeps its data"),
    ("executable file not found", Reason.CREATE_FAILED, "name a program that is in the image"),
    ("invalid mount config", Reason.CREATE_FAILED, "see agent.docker_mounts on that node"),
)  # fmt: skip


def meaning(text: str) -> tuple[Reason, str]:
    """What a refusal of the engine means, and the next step."""
    small = text.lower()
    for part, reason, next_step in _MEANINGS:
        if part in small:
            return reason, next_step
    return Reason.CREATE_FAILED, ""


class Frames:
    """Takes the engine's log stream apart: of each frame 8 bytes say which output and how long it is."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What the program wrote, as far as it is whole, both outputs in order."""
        return b"".join(said for _, said in self.take(data))

    def take(self, data: bytes) -> list[tuple[int, bytes]]:
        """The same, and each piece with the number of its output."""
        buffer, at, said = self._rest + data, 0, list[tuple[int, bytes]]()
        while len(buffer) - at >= 8:
            size = int.from_bytes(buffer[at + 4 : at + 8], "big")
            if len(buffer) - at - 8 < size:
                break
            said.append((buffer[at], buffer[at + 8 : at + 8 + size]))
            at += 8 + size
        self._rest = buffer[at:]
        return said
