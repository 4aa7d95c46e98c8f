"""Settings with their defaults. ``common/config/loader.py`` fills them from file, environment and flags.

Addresses are ``host:port``. Paths may begin with ``~``. A setting left at ``None`` is worked out at start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from moorage.common.model.addresses import split_address
from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import parse_size


def _check_address(value: str) -> str:
    split_address(value)
    return value


def _check_port_range(value: str) -> str:
    low, dash, high = value.partition("-")
    if not (dash and low.isdigit() and high.isdigit() and 1024 <= int(low) <= int(high) <= 65535):
        raise ValueError(f"{value!r} is not a port range: write low-high within 1024-65535, like 21000-21999")
    return value


def _check_docker(value: str) -> str:
    if value not in ("auto", "off") and not value.startswith("unix:///"):
        raise ValueError(f"{value!r} is not a Docker Engine of this node: write auto, off, or unix:///path")
    return value


def _check_absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not a full path: begin it with /")
    return value


def _check_size(value: str) -> str:
    try:
        parse_size(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


def _check_share(value: float) -> float:
    if abs(value * 1000 - round(value * 1000)) > 1e-6:
        raise ValueError(f"{value} has more than three decimals: GPUs are shared in thousandths")
    return value


AbsolutePath = Annotated[str, AfterValidator(_check_absolute)]
Address = Annotated[str, AfterValidator(_check_address)]
PortRange = Annotated[str, AfterValidator(_check_port_range)]
Share = Annotated[float, Field(ge=0.001, le=1), AfterValidator(_check_share)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class CommonSettings(Section):
    home: Path = Path("~/.local/share/moorage")
    """State directory: keys, the embedded database, ledgers, logs. Also MOORAGE_HOME."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    link_token: str | None = Field(None, repr=False)
    """Shared secret of manager, agents and proxies on the gRPC link. None: made once, kept in the state
    directory. Also ``link_token_file``. For links without TLS."""
    link_tls: Literal["auto", "on", "off"] = "auto"
    """Whether the gRPC links speak mTLS. ``auto``: a manager does unless it listens on loopback alone; agents
    and proxies do once they have joined, and without it dial loopback only. ``off`` sends the link token, and
    what kernels are told, in the clear: only on a network that you trust."""


class ManagerSettings(Section):
    listen: Address = "127.0.0.1:8700"
    """REST API."""
    link_listen: Address = "127.0.0.1:8701"
    """gRPC for agents and proxies."""
    link_address: Address | None = None
    """Where those that join are to dial the link, as host:port. None: the host at which they reached the API,
    and the port of link_listen."""
    ca_secret: str | None = Field(None, repr=False)
    """Opens the key of the links' CA, which is in Postgres; all managers of one database need the same. None:
    made once, kept in the state directory. Also ``ca_secret_file``."""
    certificate_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 90
    """Life of the certificate of an agent or proxy; it is renewed after a third of that."""
    dsn: str | None = Field(None, repr=False)
    """Postgres to use, like postgresql://user:password@host:5432/name. None: an embedded one."""
    postgres_bin: Path | None = None
    """Directory with ``postgres`` and ``initdb`` for the embedded one. None: look for them."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 1_048_576
    """Largest request body of the REST API."""
    suspect_after_s: Annotated[float, Field(gt=0)] = 40
    """An agent silent for so long gets no new work."""
    lost_grace_s: Annotated[float, Field(gt=0)] = 120
    """After so much more silence its kernels are given up."""
    stats_kept_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 7
    """So long what sessions used is kept, hour by hour; the last two hours minute by minute."""
    decisions_kept_days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 7
    """So long what the scheduler decided is kept: `moorage scheduler log` and `replay`. 0: not at all."""
    decisions_max_bytes: Annotated[int, Field(gt=0)] = 1_073_741_824
    """So much of it is kept at most; the oldest goes first."""


class AgentSettings(Section):
    id: str | None = None
    """Unique name of this agent. None: the host name."""
    manager: Address = "127.0.0.1:8701"
    """The manager's gRPC address."""
    address: str = "127.0.0.1"
    """Host name or IP at which proxies reach this agent's kernels; kernels listen there."""
    resource_group: str = "default"
    inventory: str = "auto"
    """``auto``: cpu, memory and NVIDIA GPUs of this node. ``fake:8xH100``: so many pretended GPUs; with
    ``/nvlink`` those of each half are linked."""
    gpus: Annotated[str, Field(pattern=r"^\s*[A-Za-z0-9-]+\s*(,\s*[A-Za-z0-9-]+\s*)*$")] | None = None
    """Only these GPUs, by index or id, in this order: ``0, 2``. None: all."""
    device_probation_s: Annotated[float, Field(ge=0)] = 300
    """A GPU that erred (XID, memory errors, lost) is offered again when it was well for so long."""
    device_free_mem: Annotated[str, AfterValidator(_check_size)] = "1GiB"
    """A GPU with no more of its memory in use is free for the next kernel."""
    device_free_timeout_s: Annotated[float, Field(ge=0)] = 60
    """So long a kernel waits for the memory of its GPUs; then they are fenced and it is tried elsewhere."""
    share_quantum: Share = 0.001
    """A part of a GPU is a multiple of this: with 0.25 it is given in quarters, with 1 only whole."""
    share_minimum: Share = 0.001
    """And at least this; none is broken up so that less would be left of it."""
    max_kernels: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """So many kernels run here at a time. None: as many as fit."""
    port_range: PortRange = "21000-21999"
    """Ports for kernels."""
    reserved_mem: str = "512MiB"
    """Memory kept back for the node itself."""
    report_interval_s: Annotated[float, Field(gt=0)] = 5
    """Longest time between two reports; a change is reported at once."""
    metrics_listen: Address | None = None
    """Prometheus metrics of this agent, its devices and kernels, like 127.0.0.1:8702; open to all who reach
    it. None: nowhere."""
    stats_interval_s: Annotated[float, Field(ge=0)] = 5
    """So often what kernels and devices use is measured: `moorage top`. 0: not at all."""
    log_max_bytes: Annotated[int, Field(ge=4096)] = 10 * 1024 * 1024
    """A kernel's log file is rotated at this size."""
    log_keep_files: Annotated[int, Field(ge=1)] = 3
    """Rotated log files kept per kernel, beside the current one."""
    docker: Annotated[str, AfterValidator(_check_docker)] = "auto"
    """The Docker Engine of this node: ``auto`` (DOCKER_HOST, else /var/run/docker.sock), ``unix:///path`` of
    its socket, or ``off``. Sessions in containers come here while it answers."""
    docker_images: tuple[str, ...] = ("*",)
    """Patterns of the images that may run here, like ``registry.example.com/team/*``."""
    docker_pull: Literal["never", "if-missing", "always"] = "if-missing"
    """When an image is pulled, with the credentials of ``docker login``."""
    docker_mounts: tuple[AbsolutePath, ...] = ()
    """Directories of this node that every container sees, read-only, at the same path: models, data sets."""
    docker_user: Annotated[str, Field(pattern=r"^([0-9]+(:[0-9]+)?)?$")] = ""
    """Containers run as this ``uid`` or ``uid:gid``. Empty: as the image says, often root."""
    docker_network: str = "isolated"
    """``isolated``: containers reach what is outside, and no container of another session. Else the name of a
    network of the engine, like ``bridge``, on which they may reach each other."""
    docker_multi_node: Literal["off", "host"] = "off"
    """Containers of clusters on several nodes: ``host`` gives them the network of this node itself, with all
    that listens there; ``off`` refuses them."""
    docker_capabilities: tuple[str, ...] = ()
    """Linux capabilities that containers keep; all others are dropped."""
    docker_gpus: Literal["auto", "nvidia", "cdi"] = "auto"
    """How GPUs are asked for: by NVIDIA's runtime, or by CDI. ``auto``: CDI where the engine lists them."""
    docker_gc: Literal["on", "dry-run", "off"] = "on"
    """Images that no container needs are removed while the disk of Docker is full, the least recently used
    first. ``dry-run``: the log says which ones would be."""
    docker_gc_high: Annotated[int, Field(ge=1, le=100)] = 85
    """Percent of that disk in use at which it begins."""
    docker_gc_low: Annotated[int, Field(ge=0, le=100)] = 75
    """And at which it is enough."""
    docker_gc_images: Literal["pulled", "any"] = "pulled"
    """Which images may be removed: those that Moorage pulled, or any."""
    docker_min_free: Annotated[str, AfterValidator(_check_size)] = "1GiB"
    """With less space left there, no new sessions in containers come here. 0: no limit."""
    docker_pids: Annotated[int, Field(ge=16)] = 4096
    """Most processes and threads of one container."""
    docker_shm: Annotated[str, AfterValidator(_check_size)] = "1GiB"
    """Size of /dev/shm in a container; it counts as memory once it is used."""
    vllm_image: Annotated[str, Field(min_length=1)] = "vllm/vllm-openai"
    """The image of containers that serve with vLLM and name none. Pin it: a tag or a digest."""
    model_cache: AbsolutePath | None = None
    """Directory of this node for what vLLM loads from a hub and compiles, shared by all its containers that
    serve with vLLM; they see it at /moorage/cache. None: each container loads its model anew."""
    model_cache_mode: Literal["read-write", "read-only"] = "read-write"
    """``read-only``: what is not in it cannot be had, and no session can change what others load."""
    vllm_command: str = "vllm"
    """How to call vLLM on this node: a program, or several words like
    ``/opt/vllm/bin/python -m vllm.entrypoints.cli.main``."""
    stop_kernels_on_exit: bool = False
    """Orderly stop ends the kernels too. Off: they go on and are adopted by the next start."""
    labels: dict[str, str] = {}


class ProxySettings(Section):
    listen: Address = "127.0.0.1:8800"
    """The OpenAI-compatible address."""
    internal_listen: Address = "127.0.0.1:8801"
    """Health and metrics."""
    manager: Address = "127.0.0.1:8701"
    """The manager's gRPC address."""
    id: str | None = None
    """Unique name of this proxy. None: host name and port."""
    auth: Literal["keys", "none"] = "keys"
    """``keys``: clients send an API key. ``none``: anybody who reaches the port may ask."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 1024 * 1024
    """Largest request body."""
    connect_timeout_s: Annotated[float, Field(gt=0)] = 3
    read_idle_timeout_s: Annotated[float, Field(gt=0)] = 300
    """Longest silence of a replica within an answer."""
    apps_domain: Annotated[str, Field(pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$")] = ""
    """Sessions' apps at host names of their own, NAME--SESSION.DOMAIN: its wildcard must lead to this proxy.
    On your own machine ``localhost`` does. Empty: all of them below /apps/, as one origin to browsers."""


class Settings(Section):
    common: CommonSettings = CommonSettings()
    manager: ManagerSettings = ManagerSettings()
    agent: AgentSettings = AgentSettings()
    proxy: ProxySettings = ProxySettings()
