"""Settings with their defaults. ``config.loader`` reads them from the file, the environment and
flags.

Addresses are ``host:port``. Paths may start with ``~``. A setting of ``None`` is determined at
start.
"""

from __future__ import annotations

from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from moorage.common.config.console_settings import ConsoleSettings
from moorage.common.config.database_settings import DatabaseSettings
from moorage.common.config.dialout_settings import DialOutSettings, ReachSettings
from moorage.common.config.etcd_address import check_manager_addresses
from moorage.common.config.etcd_settings import EtcdSettings
from moorage.common.config.fields import Address, Inventory, Origin, Size
from moorage.common.config.notification_settings import NotificationSettings
from moorage.common.config.site_settings import CelerySettings, HeappeSettings, SlurmSettings
from moorage.common.config.ssh_settings import FileServerSettings, SshSettings
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.model.addresses import AddressRule
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.slots import parse_size

# Space that a file system and its journal take.
_LEAST_DISK_BYTES = 64 << 20


def _join_addresses(value: Any) -> Any:
    """Join a list from the configuration file, which means the same as comma-separated
    addresses."""
    return (
        ", ".join(value)
        if isinstance(value, list) and all(isinstance(a, str) for a in value)
        else value
    )


def _check_address_rule(value: str) -> str:
    AddressRule.parse(value)
    return value


def _check_port_range(value: str) -> str:
    low, dash, high = value.partition("-")
    if not (dash and low.isdigit() and high.isdigit() and 1024 <= int(low) <= int(high) <= 65535):
        raise ValueError(
            f"{value!r} is not a port range: write low-high within 1024-65535, such as 21000-21999"
        )
    return value


def _check_uid_range(value: str) -> str:
    low, dash, high = value.partition("-")
    numbers = dash and low.isdigit() and high.isdigit()
    if not (
        numbers and 1000 <= int(low) <= int(high) < 2**32 - 2 and int(high) - int(low) < 65_536
    ):
        raise ValueError(
            f"{value!r} is not a range of uids: write low-high, at least 1000, at most 65536 "
            "uids, such as "
            "1900000000-1900000999"
        )

    return value


def _check_docker(value: str) -> str:
    if value not in ("auto", "off") and not value.startswith("unix:///"):
        raise ValueError(
            f"{value!r} is not a local Docker Engine: write auto, off, or unix:///path"
        )
    return value


def _check_absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path")
    return value


def _check_share(value: float) -> float:
    if abs(value * 1000 - round(value * 1000)) > 1e-6:
        raise ValueError(f"{value} has more than three decimals; GPUs are shared in thousandths")
    return value


def _check_disk(value: str) -> str:
    if 0 < parse_size(value) < _LEAST_DISK_BYTES:
        raise ValueError(
            f"{value!r} is too small for the disk of a kernel: write at least 64MiB, or 0 for no "
            "limit"
        )
    return value


AbsolutePath = Annotated[str, AfterValidator(_check_absolute)]


def _check_network(value: str) -> str:
    try:
        ip_network(value)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a network: write it like 2001:db8::/32 or 192.0.2.7"
        ) from None
    return value


def _check_kernel_network(value: str) -> str:
    try:
        network = IPv4Network(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IPv4 network: write it like 100.80.0.0/12") from None
    if network.num_addresses < 256:
        raise ValueError(
            f"{value} has {network.num_addresses} addresses; give kernels at least 256 (/24)"
        )
    return value


Addresses = Annotated[
    str, BeforeValidator(_join_addresses), AfterValidator(check_manager_addresses)
]
HostName = Annotated[str, Field(pattern=r"^\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]
Network = Annotated[str, AfterValidator(_check_network)]
KernelNetwork = Annotated[str, AfterValidator(_check_kernel_network)]
PeerAddress = Annotated[str, AfterValidator(_check_address_rule)]
UidRange = Annotated[str, AfterValidator(_check_uid_range)]
PortRange = Annotated[str, AfterValidator(_check_port_range)]
Share = Annotated[float, Field(ge=0.001, le=1), AfterValidator(_check_share)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommonSettings(Section):
    home: Path = Path("~/.local/share/moorage")
    """State directory: keys, embedded database, checkpoints, logs. Also MOORAGE_HOME."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of log lines."""
    link_token: str | None = Field(None, repr=False)
    """Shared secret of managers, agents and proxies for gRPC links without TLS. If None, it is
    generated once and stored in the state directory. Also ``link_token_file``."""
    link_tls: Literal["auto", "on", "off"] = "auto"
    """mTLS on the gRPC links. ``auto``: managers use it unless they listen on loopback only; agents
    and proxies use it once they have joined. Before that, they connect only to a manager on their
    host with their state directory, over its Unix socket. ``off`` sends the link token and kernel
    specifications, including secrets, in clear text, even to an unknown process that listens on
    loopback: only for trusted networks."""

    manager_home: Path | None = None
    """State directory of the manager on this host, with its Unix sockets, for agents and proxies
    that have not joined and use a different directory. Its owner is trusted. None means their own
    directory."""

    tls: Literal["off", "ca"] = "off"
    """TLS for the REST API and the OpenAI API if no certificate is configured. With ``ca``, the
    manager issues a certificate with its own CA, in the directory tls of its state directory;
    clients trust tls/ca.pem."""
    tls_names: tuple[HostName, ...] = ()
    """Host names in that certificate, in addition to localhost and the manager's host name and
    address."""


class ManagerSettings(
    DatabaseSettings, ConsoleSettings, FileServerSettings, NotificationSettings, Section
):
    listen: Address = "127.0.0.1:8700"
    """Address of the REST API."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Additional names in the Host header that the REST API accepts while it listens on loopback;
    otherwise it accepts only this machine's names. A name that starts with a dot includes its
    subdomains."""
    cors_origins: tuple[Origin, ...] = ()
    """Origins of other web pages that may use the REST API from browsers, such as
    https://portal.example.com, or ``*`` for every origin. A named origin may also read what the
    console session of its visitor may read. Empty: none."""
    trusted_proxies: tuple[Network, ...] = ()
    """Web servers in front of the REST API whose X-Forwarded-For header is trusted, for sign-in and
    the audit log."""
    tls_certificate: Path | None = None
    """Certificate of the REST API with its chain, in PEM. It is reloaded when it changes. If None,
    see ``common.tls``."""
    tls_key: Path | None = None
    """Key of ``tls_certificate``, in PEM."""
    link_listen: Address = "127.0.0.1:8701"
    """Address of the gRPC link for agents and proxies."""
    link_address: Address | None = None
    """Advertised address of the gRPC link, as host:port, for agents, proxies and other managers.
    None means the host in link_listen. If that is a wildcard, joining peers use the host at which
    they reached the API, and other managers use this host's address on the route to Postgres."""
    ca_secret: str | None = Field(None, repr=False)
    """Passphrase of the CA key, which is stored in Postgres. All managers that share a database
    need the same one. If None, it is generated once and stored in the state directory. Also
    ``ca_secret_file``."""
    admin_key: Annotated[str | None, Field(pattern=r"^mg-[A-Za-z0-9_-]{32,}$", repr=False)] = None
    """The first administrator's key: ``mg-`` and at least 32 random letters and digits. A manager
    creates it while the database has no key; later the setting has no effect. If None, the key is
    generated. Also ``admin_key_file``."""
    secrets_key_file: Path | None = None
    """File with the keys that encrypt stored secrets, one per line, the newest first. All managers
    that share a database need the same keys. None means ``secrets-keys`` in the state directory,
    created with the first secret."""
    certificate_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 90
    """Validity period of agent and proxy certificates; they are renewed after a third of it."""
    dsn: str | None = Field(None, repr=False)
    """Postgres URL, such as postgresql://user:password@one:5432,two:5432/name. None means the
    embedded Postgres."""
    postgres_bin: Path | None = None
    """Directory with ``postgres`` and ``initdb`` for the embedded Postgres. If None, they are
    searched for."""
    agent_addresses: tuple[PeerAddress, ...] = ()
    """Addresses that agents may report for their kernels, in addition to the source address of
    their link, such as 198.51.100.0/24, node-7.lab, or node-7=198.51.100.7 for one agent only. For
    agents behind NAT or a load balancer, or with a second network."""
    proxy_addresses: tuple[PeerAddress, ...] = ()
    """Addresses that proxies may report as ``proxy.dialout_address``, in addition to
    the source address of their link, such as 198.51.100.0/24, gate.example.com, or
    proxy-2=198.51.100.7 for one proxy only. For proxies behind NAT or a load balancer, or with a
    second network."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 1_048_576
    """Maximum size of a REST API request body."""
    openai_url: str = ""
    """Base URL of the OpenAI-compatible API for clients, such as https://models.example.com/v1. The
    console shows it, and sends its chats there. Empty means unknown; `moorage up` uses its own."""
    currency: Annotated[str, Field(pattern="^([A-Z]{3})?$")] = ""
    """Currency of prices, costs and budgets of money, as an ISO 4217 code such as EUR. It is only
    shown; a change converts nothing. Empty means plain numbers."""
    suspect_after_s: Annotated[float, Field(gt=0)] = 40
    """Silence after which an agent is SUSPECT and receives no new work. It is at least three of the
    agent's report intervals."""
    lost_grace_s: Annotated[float, Field(gt=0)] = 120
    """How long the leader must see an agent SUSPECT before the agent is LOST and its kernels are
    unreachable. Runtimes whose kernels outlive their agent announce a longer time. An agent notices
    after nine seconds that its manager is frozen; this setting plus the time to SUSPECT must be
    well above that."""
    lost_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a resource group's agents that may be silent simultaneously. While more are silent,
    none of them becomes LOST, and an alarm is raised. 1 means no limit."""
    unknown_kernels: Literal["keep", "end"] = "keep"
    """What happens to kernels that are missing from the database, for example after a backup was
    restored. keep: they continue, and their agents receive no new kernels until they have ended.
    end: their agents stop them."""
    stats_kept_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 7
    """Retention of hourly session usage. Per-minute usage is kept for two hours."""
    usage_kept_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 400
    """Retention of request and session usage (`moorage usage`). After a day, requests are
    aggregated by hour; after this time, all usage is aggregated by month."""
    sessions_kept_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 30
    """Retention of sessions that have ended, with their history and the last lines of their
    logs."""
    outputs_kept_days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 1
    """How long nodes keep an output for a retry once no step that may still run needs it."""
    audit_kept_days: Annotated[float, Field(ge=1, le=36_500, allow_inf_nan=False)] = 400
    """Retention of the audit log."""
    decisions_kept_days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 7
    """Retention of the decision log (`moorage scheduler log` and `replay`). 0 disables it."""
    expected_starts_kept_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] = 30
    """Retention of the estimates that `moorage why` showed, with the actual start times."""
    decisions_max_bytes: Annotated[int, Field(gt=0)] = 1_073_741_824
    """Maximum size of the decision log; the oldest entries are deleted first."""


class AgentSettings(ReachSettings, SlurmSettings, HeappeSettings, CelerySettings, Section):
    id: str | None = None
    """Unique name of this agent. None means the host name."""
    manager: Addresses = "127.0.0.1:8701"
    """gRPC addresses of the managers, separated by commas, or ``etcd://one:2379,two:2379`` if they
    are registered there. If a manager is down or has lost its database, the agent switches to
    another."""
    address: str = "127.0.0.1"
    """Host name or IP address on which kernels listen and at which proxies reach them."""
    resource_group: str = "default"
    """Resource group of this agent."""
    inventory: Inventory = "auto"
    """``auto``: cpu, memory and NVIDIA GPUs of this node. ``auto+cpu-slots:4``: on a node without a
    GPU, jobs that request GPUs run on its CPUs, 4 at a time; ``auto+cpu-overcommit:4``: each CPU is
    offered 4 times. ``fake:8xH100``: that many simulated GPUs; with ``/nvlink`` the GPUs of each
    half are linked."""
    gpus: Annotated[str, Field(pattern=r"^\s*[A-Za-z0-9-]+\s*(,\s*[A-Za-z0-9-]+\s*)*$")] | None = (
        None
    )
    """GPUs to offer, by index or id, in this order, such as ``0, 2``. None means all."""
    device_probation_s: Annotated[float, Field(ge=0)] = 300
    """Time without errors after which a failed GPU (XID, memory error, lost) is offered again."""
    device_free_mem: Size = "1GiB"
    """Amount of memory in use up to which a GPU counts as free for the next kernel."""
    device_free_timeout_s: Annotated[float, Field(ge=0)] = 60
    """Maximum wait for GPU memory to be released. After that, the GPUs are fenced and another agent
    is tried."""
    share_quantum: Share = 0.001
    """Granularity of GPU shares: 0.25 allocates quarters, 1 only whole GPUs."""
    share_minimum: Share = 0.001
    """Minimum GPU share. No allocation leaves a smaller remainder."""
    max_kernels: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of concurrent kernels. None means that only resources limit it."""
    port_range: PortRange = "21000-21999"
    """Port range for kernels."""
    runtimes: Annotated[tuple[RuntimeChoice, ...], Field(min_length=1)] = (
        "process",
        "docker",
        "fake",
    )
    """Runtimes to offer. Running kernels of other runtimes continue. ``slurm`` and ``heappe``
    submit jobs to a site; an agent with such a runtime can have no other."""
    process_isolation: Literal["members", "all"] = "members"
    """Whose processes run in a sandbox, under a separate uid. ``members``: everybody's except
    administrators', whose processes run as the agent's user. ``all``: also those of administrators.
    For the requirements, see docs/security.md; an agent that does not meet them refuses these
    processes."""
    process_uids: UidRange = "1900000000-1900000999"
    """Uids for sandboxed processes, one per session. Nothing else on the node may use them; several
    agents on one node need different ranges."""
    process_pids: Annotated[int, Field(ge=16)] = 4096
    """Maximum number of processes and threads of a sandboxed kernel."""
    process_disk: Annotated[Size, AfterValidator(_check_disk)] = "50GiB"
    """Maximum disk space of a sandboxed kernel: its HOME, or the kept workspace of its session.
    Enforced by user quotas if the file system of the agent's state supports them, otherwise by a
    separate file system in a file there. An agent that supports neither refuses these processes. 0
    means no limit."""
    process_ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = (53, 8700, 8800)
    """Ports of this node that sandboxed processes may reach: DNS, the REST API and the proxy."""
    process_network: KernelNetwork = "100.80.0.0/12"
    """IPv4 addresses for sandboxed processes. They are used only on this node; no network that the
    node reaches may contain them."""
    process_env: tuple[str, ...] = ()
    """The agent's environment variables that process kernels inherit, such as ``HF_TOKEN`` or
    ``NCCL_*``, in addition to PATH, the locale, the time zone, and the paths of libraries,
    certificates and caches."""
    reserved_mem: Size = "512MiB"
    """Memory reserved for the node itself."""
    report_interval_s: Annotated[float, Field(gt=0)] = 5
    """Maximum time between two reports. Changes are reported immediately."""
    metrics_listen: Address | None = None
    """Address of the agent's Prometheus metrics, such as 127.0.0.1:8702, without authentication.
    None disables them."""
    stats_interval_s: Annotated[float, Field(ge=0)] = 5
    """Interval of usage measurements (`moorage top`). 0 disables them."""
    health_interval_s: Annotated[float, Field(ge=0)] = 10
    """Interval of health checks on each ready inference kernel. A check generates a real answer if
    anything suggests that the engine may not work, and at least every five minutes. 0 disables
    them."""
    log_max_bytes: Annotated[int, Field(ge=4096)] = 10 * 1024 * 1024
    """Size at which a kernel's log file is rotated."""
    log_keep_files: Annotated[int, Field(ge=1)] = 3
    """Number of rotated log files per kernel, in addition to the current one."""
    output_max_bytes: Annotated[int, Field(gt=0)] = 10 * 1024**3
    """Maximum total size of a pipeline step's outputs, and of each input that is fetched from
    another node."""
    docker: Annotated[str, AfterValidator(_check_docker)] = "auto"
    """Docker Engine of this node: ``auto`` (DOCKER_HOST, otherwise /var/run/docker.sock), the
    ``unix:///path`` of its socket, or ``off``. Container sessions are placed here only while it
    responds."""
    docker_images: tuple[str, ...] = ("*",)
    """Patterns of allowed images, such as ``registry.example.com/team/*``. For users who are not
    administrators, registries that are not public must be named."""
    docker_pull: Literal["never", "if-missing", "always"] = "if-missing"
    """Image pull policy. The credentials are those of ``docker login``."""
    docker_mounts: tuple[AbsolutePath, ...] = ()
    """Directories mounted read-only into every container at the same path, such as models and data
    sets."""
    docker_user: Annotated[str, Field(pattern=r"^([0-9]+(:[0-9]+)?)?$")] = ""
    """``uid`` or ``uid:gid`` of containers. Empty means the image's user, often root."""
    docker_network: str = "isolated"
    """``isolated``: containers reach external addresses but no containers of other sessions. Any
    other value is the name of a Docker network, such as ``bridge``, on which containers may reach
    each other."""
    docker_multi_node: Literal["wireguard", "host", "off"] = "wireguard"
    """Network of containers in multi-node clusters: ``wireguard`` connects them over a separate
    encrypted network (UDP ports 25000 to 28999 between the nodes); ``host`` runs them in the node's
    network namespace, with access to everything that listens there; ``off`` refuses them."""
    docker_capabilities: tuple[str, ...] = ()
    """Linux capabilities that containers keep. All others are dropped."""
    docker_gpus: Literal["auto", "nvidia", "cdi"] = "auto"
    """How containers get GPUs: NVIDIA runtime or CDI. ``auto`` uses CDI if the engine lists the
    GPUs."""
    docker_gc: Literal["on", "dry-run", "off"] = "on"
    """Garbage collection of unused images when Docker's disk is full, least recently used first.
    ``dry-run`` logs what would be removed."""
    docker_gc_high: Annotated[int, Field(ge=1, le=100)] = 85
    """Disk usage, in percent, at which image garbage collection starts."""
    docker_gc_low: Annotated[int, Field(ge=0, le=100)] = 75
    """Disk usage, in percent, at which image garbage collection stops."""
    docker_gc_images: Literal["pulled", "any"] = "pulled"
    """Which images may be removed: those that Moorage pulled, or any."""
    docker_min_free: Size = "1GiB"
    """Free space below which no new container sessions are placed here. 0 means no limit."""
    docker_pids: Annotated[int, Field(ge=16)] = 4096
    """Maximum number of processes and threads per container."""
    docker_shm: Size = "1GiB"
    """Size of /dev/shm per container. The space used in it counts as memory."""
    vllm_image: Annotated[str, Field(min_length=1)] = "vllm/vllm-openai"
    """Default image of vLLM containers. Pin it by tag or digest."""
    model_cache: AbsolutePath | None = None
    """Directory for the models of vLLM containers, in the layout of huggingface-hub below
    ``huggingface``. The agent downloads models into it, and mounts each container's model
    read-only. If None, each container downloads its model."""
    vllm_command: str = "vllm"
    """Command that starts vLLM on this node, such as ``/opt/vllm/bin/vllm``."""
    stop_kernels_on_exit: bool = False
    """Whether kernels are also stopped when the agent stops in an orderly way; batch sessions with
    ``retries`` are then requeued without using a retry. Otherwise kernels keep running, and the
    next start adopts them."""
    labels: dict[str, str] = {}
    """Labels of this node, which sessions may require."""
    plugins: dict[str, dict[str, Any]] = Field({}, repr=False)
    """Settings for the runtimes custom:NAME, in sections [agent.plugins.NAME]."""
    sites: dict[str, dict[str, Any]] = Field({}, repr=False)
    """Sites to which this process submits jobs, each as a separate agent, in sections
    [agent.sites.NAME]. A site can set id, runtimes, resource_group, address, port_range, labels,
    and the settings that begin with heappe_ and slurm_; the section agent supplies the others.
    Empty means one agent, without sites."""


class ProxySettings(DialOutSettings, SshSettings, Section):
    listen: Address = "127.0.0.1:8800"
    """Address of the OpenAI-compatible API."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Additional names in the Host header that the proxy accepts while it listens on loopback;
    otherwise it accepts only this machine's names and those of ``apps_domain``. A name that starts
    with a dot includes its subdomains."""
    cors_origins: tuple[Origin, ...] = ()
    """Origins of web pages that may use the OpenAI API from browsers, such as
    https://chat.example.com, or ``*`` for every origin. It has no effect on service ports. Empty:
    none."""
    tls_certificate: Path | None = None
    """Certificate of the OpenAI API with its chain, in PEM. It is reloaded when it changes. If
    None, see ``common.tls``."""
    tls_key: Path | None = None
    """Key of ``tls_certificate``, in PEM."""
    trusted_proxies: tuple[Network, ...] = ("127.0.0.0/8", "::1/128")
    """Addresses of web servers in front of this proxy that are trusted to say who their clients
    are: X-Forwarded-For and similar headers of others reach neither apps nor models."""
    internal_listen: Address = "127.0.0.1:8801"
    """Address of health and metrics."""
    manager: Addresses = "127.0.0.1:8701"
    """gRPC addresses of the managers, separated by commas, or ``etcd://one:2379,two:2379`` if they
    are registered there. If a manager is down or has lost its database, the proxy switches to
    another."""
    id: str | None = None
    """Unique name of this proxy. If None, it consists of the host name, the port and random
    characters, and is stored in the state directory."""
    plane: Literal["asyncio", "simple"] = "asyncio"
    """Data plane: ``asyncio`` is the fast one; ``simple`` is a plain one based on aiohttp, for
    comparison."""
    auth: Literal["keys", "none"] = "keys"
    """``keys``: clients must send an API key. ``none``: no authentication."""
    credentials_max_age_s: Annotated[float, Field(ge=0)] = 3600
    """How long the proxy honours keys and access tokens without contact with a manager, which would
    report revocations. 0 means no limit."""
    workers: Annotated[int, Field(ge=0, le=15)] = 0
    """Number of processes that serve ``listen`` together; SIGHUP replaces them one by one. 0 means
    one process, without a parent."""
    drain_timeout_s: Annotated[float, Field(ge=0)] = 120
    """How long a worker's requests may continue when it is replaced or the proxy stops."""
    metering: bool = True
    """Whether to count the requests and tokens of each key and model, and report them to the
    manager."""
    default_model: str = ""
    """Model for requests that name none. Empty: they get 400."""
    model_aliases: dict[str, str] = {}
    """Other names for models, such as ``{"gpt-4o-mini": "qwen"}``. A model that has the name itself
    takes precedence."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 64 * 1024 * 1024
    """Maximum size of a request body: audio files, and chats with images, need tens of MiB."""
    max_total_body_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024 * 1024
    """Maximum total size of the request bodies above 64 KiB that a process of the proxy keeps in
    memory. A body is kept until its response starts, so that another replica can get it. Requests
    beyond the limit get 503."""
    max_hold_s: Annotated[float, Field(ge=0)] = 300
    """How long a request is held while its model is loaded or woken. After that, the response is
    503."""
    max_held_requests: Annotated[int, Field(ge=0)] = 1000
    """Maximum number of requests that are held concurrently, across all models."""
    max_held_bytes: Annotated[int, Field(ge=0)] = 256 * 1024 * 1024
    """Maximum total size of the bodies of held requests."""
    connect_timeout_s: Annotated[float, Field(gt=0)] = 3
    """Timeout for connecting to a replica."""
    read_idle_timeout_s: Annotated[float, Field(gt=0)] = 300
    """Longest time that a replica may be silent within a response."""
    provider_hosts: tuple[str, ...] = ()
    """Host names and networks (CIDR) of external providers that endpoints may fall back to although
    their addresses are not public. A name that starts with a dot includes its subdomains."""
    provider_ca: Path | None = None
    """CA certificates in PEM that are trusted for providers, in addition to the system's."""
    apps_domain: Annotated[str, Field(pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$")] = ""
    """Domain for apps at separate host names, NAME--SESSION.DOMAIN; its wildcard must resolve to
    this proxy. On a local machine, use ``localhost``. If empty, apps are served below /apps/, which
    browsers treat as a single origin."""


class Settings(Section):
    common: CommonSettings = CommonSettings()
    manager: ManagerSettings = ManagerSettings()
    agent: AgentSettings = AgentSettings()
    proxy: ProxySettings = ProxySettings()
    etcd: EtcdSettings = EtcdSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
