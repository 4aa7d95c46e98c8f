"""Isolation of process kernels: whether this agent can provide it, and the sandbox of each kernel.

Members' kernels run only in a sandbox (``docs/security.md``). A sandbox requires root, control
groups, nftables and namespaces, including network namespaces. ``prepare`` tries all of them once
and reports what is missing.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import site
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from zlib import crc32

import structlog

from moorage.agent.environments.layout import engines_folder
from moorage.agent.runtimes import wireguard
from moorage.agent.runtimes.base import LOOPBACK, CreateFailed, Launch, RuntimeFailed
from moorage.agent.runtimes.host_names import hosts_file
from moorage.agent.runtimes.process.control_groups import ControlGroups
from moorage.agent.runtimes.process.disks import KernelDisks
from moorage.agent.runtimes.process.networks import Attachment, KernelNetwork, KernelNetworks
from moorage.agent.runtimes.process.sandbox import HOSTS, Sandbox
from moorage.agent.runtimes.process.system_calls import deny_filter
from moorage.agent.runtimes.process.uids import KernelUids
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.slots import parse_size

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

log = structlog.get_logger("moorage.agent.process")
_FILE = "sandbox"
_NETWORK_FILE = "network"
# Kernels must not see the files that the node's other users, its services and the agent leave
# there. /run has sockets of services, including Docker's.
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/run")
# From the shared address block for carriers (RFC 6598), which sites' networks rarely use.
_ADDRESSES = IPv4Network("100.80.0.0/12")
_CONTAINERS = "or use containers (runtime docker)"


@dataclass(frozen=True, slots=True)
class IsolationRules:
    """The isolation rules. ``of``: whose kernels are isolated. ``uids``: the uids for kernels.
    ``ports``: the node's ports that kernels may reach. ``pids``: the limit per kernel. ``memory``:
    bytes for all kernels together, and ``disk``: bytes for each kernel; 0 means no limit.
    ``hidden``: the installation's directories. ``needed``: paths that kernels' programs read.
    ``addresses``: the addresses for kernels, used only on their node. ``address``: the node's
    address, at which others reach them."""

    of: Literal["members", "all"] = "members"
    uids: range = range(1_900_000_000, 1_900_001_000)
    ports: tuple[int, ...] = ()
    pids: int = 4096
    memory: int = 0
    disk: int = 0
    hidden: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    addresses: IPv4Network = _ADDRESSES
    address: str = "127.0.0.1"


def rules_of(settings: AgentSettings, home: Path) -> IsolationRules:
    """The rules from the settings. ``home``: the installation's state directory."""
    low, _, high = settings.process_uids.partition("-")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    vllm = shutil.which(shlex.split(settings.vllm_command)[0]) if settings.vllm_command else None

    return IsolationRules(
        settings.process_isolation,
        range(int(low), int(high) + 1),
        ports=settings.process_ports,
        pids=settings.process_pids,
        memory=max(0, total - parse_size(settings.reserved_mem)),
        disk=parse_size(settings.process_disk),
        hidden=(str(home),),
        needed=(
            *((os.path.dirname(os.path.dirname(vllm)),) if vllm else ()),
            str(engines_folder(os.environ)),
        ),
        addresses=IPv4Network(settings.process_network),
        address=settings.address,
    )


def describe(settings: AgentSettings, problem: str) -> str:
    """Which users' processes run on this node, and how, in one line; empty if the agent offers
    none. ``problem``: why it cannot isolate them; empty if it can."""
    if "process" not in settings.runtimes:
        return ""

    sandbox = f"refused ({problem.partition('; ')[0]})" if problem else "in a sandbox"
    if settings.process_isolation == "all":
        return f"all {sandbox}"

    return (
        f"those of administrators as {user_name()}, with access to this machine; others {sandbox}"
    )


class KernelIsolation:
    """An agent's isolation of kernels. ``state``: its state directory. ``problem``: why it cannot
    isolate kernels; empty if it can. ``cure``: the next step."""

    def __init__(self, state: Path, rules: IsolationRules) -> None:
        self._state = state
        self._rules = rules
        self.problem = "it has not been tried yet"
        self.cure = ""
        name = f"{crc32(os.fsencode(state.resolve())):08x}"
        self._groups = ControlGroups(name, memory=rules.memory, pids=rules.pids)
        ipv6 = ":" in rules.address
        self._networks = KernelNetworks(name, rules.ports, rules.addresses, ipv6=ipv6)
        self.uids = KernelUids(rules.uids, state / "workspaces" / "kept")
        self.disks = KernelDisks(state, rules.disk)
        self._filter = b""
        self._lock = threading.Lock()

    # All methods below except ``applies`` block.

    def applies(self, isolated: bool) -> bool:
        """Whether a kernel runs in a sandbox. ``isolated``: whether the kernel requires it."""
        return not self.problem and (isolated or self._rules.of == "all")

    def refuses(self, isolated: bool) -> bool:
        return bool(self.problem) and (isolated or self._rules.of == "all")

    def prepare(self, attempt: Callable[[Sandbox, KernelNetwork], None]) -> None:
        """Find out whether kernels can be isolated. ``attempt`` runs a program in a sandbox, and
        may raise ``RuntimeFailed``."""
        with self._lock:
            try:
                self._prepare(attempt)
                self.problem = ""
                self.cure = ""
            except RuntimeFailed as error:
                self.problem = error.message
                self.cure = error.next_step

    def _prepare(self, attempt: Callable[[Sandbox, KernelNetwork], None]) -> None:
        if os.geteuid() != 0:
            raise RuntimeFailed(
                f"the agent runs as {user_name()}, not as root, so it cannot give kernels separate "
                "uids",
                next_step=(
                    f"run the agent as root (deploy/systemd/moorage-agent.service), {_CONTAINERS}"
                ),
            )

        try:
            self._filter = deny_filter(os.uname().machine)
        except KeyError as error:
            raise RuntimeFailed(
                f"there is no filter of system calls for {error}", next_step=_CONTAINERS
            ) from None

        _check_address(self._rules.address)
        self._groups.prepare()
        existing = self._existing()
        attachments = self._attachments()
        self._networks.load(attachments)
        if attachments.keys() >= existing.keys():
            # In the previous release, kernels used the node's network, with a filter by uid.
            self._networks.remove_table(f"moorage_{self._rules.uids[0]}")

        self.uids.load(
            {kernel_id: (found.session, found.uid) for kernel_id, found in existing.items()}
        )
        self._groups.remove_others({file for found in existing.values() for file in found.groups})
        self.disks.prepare()
        trial = self._state / "sandbox-trial"
        (trial / "work").mkdir(parents=True, exist_ok=True, mode=0o700)
        groups: tuple[str, ...] = ()
        try:
            groups = self._groups.create()
            network = self._networks.try_out()
            attempt(
                self._sandbox(
                    "trial",
                    self._rules.uids[0],
                    work=trial / "work",
                    limits=(groups, {}),
                    needed=(),
                ),
                network,
            )
        except OSError as error:
            raise RuntimeFailed(f"the agent cannot create control groups: {error}") from None
        finally:
            self._groups.remove(groups)
            shutil.rmtree(trial, ignore_errors=True)

    def ensure(self) -> None:
        """Restore state on the node that other programs may have removed. A failure is noted in
        ``problem``."""
        with self._lock:
            if self.problem:
                return

            try:
                self._networks.ensure()
            except RuntimeFailed as error:
                self.problem = error.message
                self.cure = error.next_step

    def create(self, launch: Launch, folder: Path) -> Sandbox:
        """The sandbox for the kernel with this directory, whose ``work`` exists. Raises
        ``CreateFailed`` or ``OSError``."""
        hosts = _write_hosts(folder, launch.hosts)
        uid = self.uids.acquire(launch.kernel_id, launch.session_id)
        self.disks.limit_user(uid)

        # The node's files that only root may read are available to administrators, who could read
        # them anyway.
        needed = () if launch.isolated else launch.paths
        needed = (*needed, *launch.inputs.values())
        work = folder / "work"
        limits = self._groups.create(), launch.slots
        sandbox = self._sandbox(
            launch.session_id, uid, work=work, limits=limits, needed=needed, hosts=hosts
        )
        _write_private(folder / _FILE, sandbox.encode())
        _give(os.path.realpath(work), uid)

        return sandbox

    def enter_network(self, launch: Launch, folder: Path) -> KernelNetwork:
        """Put the kernel with this directory into a network namespace, and return the namespace.
        Raises ``CreateFailed``, in which case none of this exists."""
        if launch.overlay is None and any(address != LOOPBACK for address in launch.hosts.values()):
            raise CreateFailed(
                "processes on this node cannot join a cluster on several nodes: the manager sent "
                "no key for "
                "their network",
                reason=Reason.NO_NETWORK,
                clean=True,
                next_step="use --cluster-mode single-node, or start the session again",
            )

        # Each kernel in a cluster over several nodes has its own interface, even if several are on
        # one node.
        group = launch.kernel_id if launch.overlay else launch.session_id
        try:
            endpoints = wireguard.check_now(launch)
            attachment = self._networks.acquire(launch.kernel_id, group)
            try:
                wireguard.attach(launch, endpoints, attachment.network.path)
                _write_private(folder / _NETWORK_FILE, _encode(attachment, _ports(launch)))
            except (CreateFailed, OSError):
                self._networks.release(launch.kernel_id)
                raise
        except RuntimeFailed as error:
            raise CreateFailed(
                error.message, reason=Reason.NO_NETWORK, clean=True, next_step=error.next_step
            ) from None

        return attachment.network

    def publish(self, launch: Launch) -> None:
        """Publish a kernel's ports. Raises ``RuntimeFailed``."""
        self._networks.publish(launch.kernel_id, _ports(launch))

    def replenish(self) -> None:
        """Prepare resources for the next kernels. Returns immediately."""
        if not self.problem:
            self._networks.replenish()

    def release(self, folder: Path) -> None:
        """Remove the node's resources from ``create`` and ``enter_network``. Raises
        ``RuntimeFailed``."""
        self._networks.release(KernelId(folder.name))
        try:
            sandbox = load(folder)
        except ValueError:
            return  # the agent's next start removes its groups
        if sandbox is not None:
            ControlGroups.remove(sandbox.groups)

    def close(self) -> None:
        """Close after the last creation. The resources of existing kernels stay."""
        self._networks.close()
        self._groups.close()
        self.disks.close()

    def _sandbox(
        self,
        session: str,
        uid: int,
        work: Path,
        limits: tuple[tuple[str, ...], Mapping[str, int]],
        *,
        needed: tuple[str, ...],
        hosts: str = "",
    ) -> Sandbox:
        """Build the sandbox. ``limits``: the control groups, and the slots that limit them."""
        groups = limits[0]
        memory = self._groups.limit(*limits)
        hidden = (*_PRIVATE, str(self._state), *self._rules.hidden)
        empty, visible = mount_plan(
            hidden, (*runtime_paths(), *self._rules.needed, *needed), _is_closed
        )
        inside = os.path.join(os.path.realpath(work.parent), "work")
        writable = os.path.realpath(work), inside

        return Sandbox(
            session,
            uid,
            groups=groups,
            memory=memory,
            empty=empty,
            visible=visible,
            writable=writable,
            system_calls=self._filter,
            hosts=hosts,
        )

    def _existing(self) -> dict[KernelId, Sandbox]:
        found = {}
        for path in (self._state / "kernels").glob(f"*/{_FILE}"):
            try:
                sandbox = load(path.parent)
            except ValueError as error:
                log.error("unreadable sandbox of a kernel", file=str(path), error=str(error))
                continue

            if sandbox is not None:
                found[KernelId(path.parent.name)] = sandbox

        return found

    def _attachments(self) -> dict[KernelId, Attachment]:
        found = {}
        for path in (self._state / "kernels").glob(f"*/{_NETWORK_FILE}"):
            try:
                found[KernelId(path.parent.name)] = _decode(path.read_text())
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.error("unreadable network of a kernel", file=str(path), error=str(error))
        return found


def _check_address(address: str) -> None:
    """Check the address. Raises ``RuntimeFailed`` unless kernels' ports can be published at
    ``address``, which is possible for IPv4 addresses and for IPv6 addresses that are neither
    loopback nor link-local."""
    if ":" not in address:
        try:
            socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            raise RuntimeFailed(
                f"agent.address = {address} does not resolve to an IPv4 address",
                next_step=(
                    "set agent.address to an IPv4 or IPv6 address of this node itself, "
                    f"{_CONTAINERS}"
                ),
            ) from None

        return

    parsed = ip_address(address.strip("[]"))
    if parsed.is_loopback or parsed.is_link_local:
        raise RuntimeFailed(
            f"agent.address = {address} cannot be used for sandboxed processes: Linux forwards no "
            "connection from this IPv6 address into a network namespace",
            next_step=(
                "set agent.address to another address of this node, such as 127.0.0.1, "
                f"{_CONTAINERS}"
            ),
        )


def _ports(launch: Launch) -> dict[int, int]:
    """The node's ports, by the ports on which the kernel listens."""
    apps = {app.inner or app.port: app.port for app in launch.apps if app.port}
    return apps | ({launch.port: launch.port} if launch.port else {})


def _encode(attachment: Attachment, ports: Mapping[int, int]) -> str:
    pairs = sorted(ports.items())
    return json.dumps({"group": attachment.group, **asdict(attachment.network), "ports": pairs})


def _decode(text: str) -> Attachment:
    fields = json.loads(text)
    network = KernelNetwork(fields["name"], fields["interface"], fields["address"])
    return Attachment(fields["group"], network, {inner: port for inner, port in fields["ports"]})


def load(folder: Path) -> Sandbox | None:
    """Load the sandbox of the kernel with this directory. None if it has none. Raises
    ``ValueError`` if its record is damaged."""
    try:
        return Sandbox.decode((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
    except (EOFError, TypeError) as error:
        raise ValueError(f"not a sandbox: {error}") from None


def runtime_paths() -> tuple[str, ...]:
    """The paths that the agent's engines read: its Python with all packages, and its own code."""
    package = os.path.dirname(os.path.dirname(sys.modules["moorage"].__file__ or ""))
    own = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), package)
    # DNS configuration is often a service's file in /run.
    user_site = site.getusersitepackages()
    return (*own, *([user_site] if user_site in sys.path else []), "/etc/resolv.conf")


def mount_plan(
    hidden: Iterable[str], needed: Iterable[str], is_closed: Callable[[str], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The directories to replace with empty ones, and the paths in them to mount again, parents
    first.

    A needed path below a directory that is closed to other users is mounted in an empty directory,
    so that nothing else from the original directory appears. Missing paths are left out.
    """
    paths = {os.path.realpath(path) for path in needed if os.path.exists(path)}
    closed = {parent for path in paths for parent in _parents(path) if is_closed(parent)}
    empty = {os.path.realpath(path) for path in hidden if os.path.isdir(path)} | closed
    empty = {path for path in empty if not empty.intersection(_parents(path))}
    visible = {path for path in paths if empty.intersection((path, *_parents(path)))}
    visible = {path for path in visible if not visible.intersection(_parents(path))}

    return tuple(sorted(empty)), tuple(sorted(visible))


def _parents(path: str) -> list[str]:
    """A path's parents, without the root."""
    return [str(parent) for parent in Path(path).parents][:-1]


def _is_closed(path: str) -> bool:
    return not os.stat(path).st_mode & stat.S_IXOTH


def user_name() -> str:
    """The user name of this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _write_hosts(folder: Path, hosts: Mapping[str, str]) -> str:
    """Write the hosts file for a cluster's kernel into its directory and return the file's path.
    The path is empty if the kernel needs none, or on a node without a hosts file, where none can be
    mounted. Raises ``CreateFailed``."""
    if not hosts:
        return ""

    try:
        of_node = Path(HOSTS).read_text(errors="surrogateescape")
    except FileNotFoundError:
        log.warning("the host names of a cluster do not resolve: this node has no /etc/hosts")
        return ""

    path = folder / "hosts"
    path.write_text(hosts_file(hosts, of_node), errors="surrogateescape")
    path.chmod(0o644)
    return os.path.realpath(path)


def _write_private(path: Path, text: str) -> None:
    """Write atomically, so that a full disk does not leave a partial file."""
    new = path.with_suffix(".new")
    with open(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w"
    ) as file:
        file.write(text)
    new.replace(path)


def _give(work: str, uid: int) -> None:
    """Make ``uid`` the owner of a working directory and its contents, without following links."""
    if os.stat(work).st_uid == uid:
        return
    for _, directories, files, folder in os.fwalk(work):
        for name in (*directories, *files):
            with suppress(FileNotFoundError):
                os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
    # This is done last, because it marks the work as done.
    os.chown(work, uid, uid)
