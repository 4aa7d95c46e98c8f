"""Network namespaces of sandboxed kernels.

A session's kernels on one node share a network namespace, like the containers of a pod in
Kubernetes: they can listen on any port without taking the node's ports. A veth pair connects the
namespace to the node. The node translates connections to a kernel's published ports, at any of the
node's addresses, and the kernel's connections to other hosts. nftables drops all other traffic
between a kernel and the node, other kernels, the node's bridges, and link-local addresses, where
clouds have their metadata.

Inside the namespace, a connection to a published port arrives at 127.0.0.1, so that a program can
listen on that address alone, and a connection to 127.0.0.1 at one of ``agent.process_ports`` goes
to the node. Linux supports neither for IPv6, which kernels have if their node is reached over it:
in that case, a program listens on ``::``.

Namespaces are created ahead of their kernels. The kernels' records are the state: ``load`` rebuilds
the rules from them and removes unused namespaces.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path
from zlib import crc32

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.process.network_rules import (
    GATEWAY,
    GATEWAY6,
    INTERFACES,
    PUBLISHED,
    PUBLISHED6,
    address6_of,
    element,
    element6,
    inner_rules,
    node_rules,
    resolver_of,
)
from moorage.agent.runtimes.process.sandbox import enter_network
from moorage.common.model.ids import KernelId

log = structlog.get_logger("moorage.agent.process")
NAMESPACES = Path("/run/netns")
_READY = 4
# Interface names have at most 15 characters.
_MAX_NUMBER = 0xF_FFFF
_ATTEMPTS = 64
_TIMEOUT_S = 30
_TRIAL_S = 3.0
_RESOLVER = Path("/etc/resolv.conf")
_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")


@dataclass(frozen=True, slots=True)
class KernelNetwork:
    """``name``: the namespace's name in /run/netns. ``interface``: the node's end of the veth
    pair."""

    name: str
    interface: str
    address: str

    @property
    def path(self) -> str:
        return str(NAMESPACES / self.name)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A kernel in a namespace. ``group``: the namespace's owner. ``ports``: the node's ports, by
    the ports on which the kernel listens."""

    group: str
    network: KernelNetwork
    ports: Mapping[int, int] = field(default_factory=dict)


class KernelNetworks:
    """An agent's networks. ``name``: the agent's name, unique on its node, 8 characters.
    ``allowed``: the node's ports that kernels may reach. ``addresses``: the addresses for kernels,
    without those in use. ``ipv6``: kernels also have an IPv6 address. All methods block."""

    def __init__(
        self, name: str, allowed: Sequence[int], addresses: IPv4Network, *, ipv6: bool = False
    ) -> None:
        self._table = f"moorage_net_{name}"
        self._interfaces = f"{INTERFACES}{name}"
        self._names = f"moorage-{name}-"
        self._allowed = allowed
        self._addresses = addresses
        self._ipv6 = ipv6
        self._number = 0
        self._offset = crc32(name.encode()) % addresses.num_addresses
        self._attached: dict[KernelId, Attachment] = {}
        self._ready: list[KernelNetwork] = []
        self._lock = threading.RLock()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="kernel-networks")
        self._closed = False

    def load(self, attached: Mapping[KernelId, Attachment]) -> None:
        """Load the existing kernels. Raises ``RuntimeFailed``."""
        with self._lock:
            self._attached = dict(attached)
            self._ready = []
            self._permit_forwarding()
            self._load_rules()
            used = {attachment.network.name for attachment in attached.values()}
            with suppress(FileNotFoundError):
                for path in NAMESPACES.iterdir():
                    if path.name.startswith(self._names) and path.name not in used:
                        _remove(
                            KernelNetwork(
                                path.name, self._interfaces + path.name.rpartition("-")[2], ""
                            )
                        )

    def ensure(self) -> None:
        """Restore state that other programs have removed. Raises ``RuntimeFailed``."""
        with self._lock:
            if _run("nft", "list", "chain", "inet", self._table, "forward"):
                self._load_rules()
            self._permit_forwarding()

    def _permit_forwarding(self) -> None:
        _permit_forwarding(self._interfaces)
        if self._ipv6:
            _permit_forwarding6(self._interfaces)

    def try_out(self) -> KernelNetwork:
        """Test a connection to a published port. Returns the namespace, which is ready for a
        kernel. Raises ``RuntimeFailed``."""
        network = self._make()
        hosts = ["127.0.0.1", *([_own_address6()] if self._ipv6 else [])]
        with (
            _listener_in(network, "::" if self._ipv6 else "127.0.0.1") as server,
            socket.socket() as reserved,
        ):
            reserved.bind(("127.0.0.1", 0))
            port = reserved.getsockname()[1]
            self._publish([(port, network.address, server.getsockname()[1])])

            try:
                for host in hosts:
                    socket.create_connection((host, port), _TRIAL_S).close()
            except OSError as error:
                raise RuntimeFailed(
                    f"a connection to a kernel in a network namespace fails, at {host}: {error}",
                    next_step=(
                        "check the firewall of that node, and that its Linux has nft_nat "
                        "and nft_fib"
                    ),
                ) from None
            finally:
                self._withdraw([port])

        with self._lock:
            self._ready.append(network)

        return network

    def acquire(self, kernel_id: KernelId, group: str) -> Attachment:
        """Attach a kernel to its group's namespace and return the namespace. Raises
        ``RuntimeFailed``."""
        if (attachment := self._attach(kernel_id, group)) is not None:
            return attachment
        network = self._make()
        with self._lock:
            self._ready.append(network)
            attachment = self._attach(kernel_id, group)
        assert attachment is not None, "one is ready"
        return attachment

    def _attach(self, kernel_id: KernelId, group: str) -> Attachment | None:
        """Attach a kernel. None if it needs another namespace and none is ready."""
        with self._lock:
            if kernel_id not in self._attached:
                networks = [
                    other.network for other in self._attached.values() if other.group == group
                ]
                if not networks and not self._ready:
                    return None

                self._attached[kernel_id] = Attachment(
                    group, networks[0] if networks else self._ready.pop()
                )

            return self._attached[kernel_id]

    def publish(self, kernel_id: KernelId, ports: Mapping[int, int]) -> None:
        """Publish the kernel's ports. ``ports``: the node's ports, by the ports on which it
        listens. Raises ``RuntimeFailed``."""
        with self._lock:
            before = self._attached[kernel_id]
            self._attached[kernel_id] = Attachment(before.group, before.network, dict(ports))
            self._publish([(port, before.network.address, inner) for inner, port in ports.items()])

    def release(self, kernel_id: KernelId) -> None:
        """Detach a kernel that has ended. The namespace ends with the last kernel in its group."""
        with self._lock:
            gone = self._attached.pop(kernel_id, None)
            if gone is None:
                return
            self._withdraw(gone.ports.values())
            if all(other.network != gone.network for other in self._attached.values()):
                _remove(gone.network)

    def replenish(self) -> None:
        """Prepare namespaces in a thread. Several are prepared only once kernels use them, because
        most agents never run such kernels."""
        with self._lock:
            if self._attached and not self._closed and len(self._ready) < _READY:
                self._maker.submit(self._replenish)

    def _replenish(self) -> None:
        try:
            while not self._closed and len(self._ready) < _READY:
                network = self._make()
                with self._lock:
                    self._ready.append(network)
        except RuntimeFailed as error:
            log.warning(
                "cannot prepare the network of a kernel; kernels start more slowly",
                error=error.message,
            )

    def close(self) -> None:
        """Close after the last creation. Running kernels keep their networks."""
        with self._lock:
            self._closed = True

        self._maker.shutdown(cancel_futures=True)
        with self._lock:
            for network in self._ready:
                _remove(network)

            self._ready = []
            if not self._attached:
                self.remove_table(self._table)

    @staticmethod
    def remove_table(name: str) -> None:
        """Remove an nftables table, if it exists."""
        _run("nft", "delete", "table", "inet", name)

    def _publish(self, published: Collection[tuple[int, str, int]]) -> None:
        """Publish entries, each with the node's port, the kernel's address and the kernel's
        port."""
        if not published:
            return
        command = ("nft", "add", "element", "inet", self._table)
        _must(*command, PUBLISHED, _set(element(*entry) for entry in published))
        if self._ipv6:
            _must(*command, PUBLISHED6, _set(element6(*entry) for entry in published))

    def _withdraw(self, ports: Collection[int]) -> None:
        if not ports:
            return
        command = ("nft", "delete", "element", "inet", self._table)
        for name in (PUBLISHED, PUBLISHED6) if self._ipv6 else (PUBLISHED,):
            _run(*command, name, _set(map(str, ports)))

    def _load_rules(self) -> None:
        published = [
            (port, attachment.network.address, inner)
            for attachment in self._attached.values()
            for inner, port in attachment.ports.items()
        ]
        uplinks = [*_uplinks(), *(_uplinks6() if self._ipv6 else [])]

        text = node_rules(
            self._table,
            self._interfaces,
            allowed=self._allowed,
            uplinks=uplinks,
            published=published,
            ipv6=self._ipv6,
        )
        _must("nft", "-f", "-", text=text)

    def _make(self) -> KernelNetwork:
        """Create a namespace. Raises ``RuntimeFailed``."""
        network = self._connected()
        resolver = resolver_of(_read(_RESOLVER), _read(_UPSTREAM))
        rules = inner_rules(network.address, self._allowed, resolver)
        setting = "net/ipv4/conf/{}/route_localnet"
        inside = f"echo 1 > /proc/sys/{setting.format('all')} && exec nft -f -"
        try:
            Path("/proc/sys", setting.format(network.interface)).write_text("1")
            _must("ip", "-n", network.name, "-batch", "-", text=_inside(network, self._ipv6))
            _must("nsenter", f"--net={network.path}", "sh", "-c", inside, text=rules)
        except OSError as error:
            _remove(network)
            raise _failed(str(error)) from None
        except RuntimeFailed:
            _remove(network)
            raise

        return network

    def _connected(self) -> KernelNetwork:
        """Create a namespace with an unused address on this node. Raises ``RuntimeFailed``."""
        for _ in range(_ATTEMPTS):
            network = self._next()
            # This is exclusive, because another agent's address, or one in use on this node,
            # already has a route.
            problem = _run("ip", "-batch", "-", text=_outside(network, _mtu(), self._ipv6))
            if not problem:
                return network

            _remove(network)
            if "File exists" not in problem:
                raise _failed(problem)

        raise _failed(f"no address of {self._addresses} is free on this node: {problem}")

    def _next(self) -> KernelNetwork:
        with self._lock:
            used = {attachment.network.name for attachment in self._attached.values()}
            used.update(network.name for network in self._ready)
            while True:
                self._number = self._number % _MAX_NUMBER + 1
                name = f"{self._names}{self._number:x}"
                if name not in used:
                    break

            index = (self._offset + self._number) % self._addresses.num_addresses

        address = IPv4Address(int(self._addresses.network_address) + index)
        return KernelNetwork(name, f"{self._interfaces}{self._number:x}", str(address))


def _set(elements: Iterable[str]) -> str:
    return f"{{ {', '.join(elements)} }}"


def _outside(network: KernelNetwork, mtu: int, ipv6: bool) -> str:
    lines = (
        f"netns add {network.name}\n"
        f"link add {network.interface} mtu {mtu} type veth peer name eth0 mtu {mtu} netns "
        f"{network.name}\n"
        f"address add {GATEWAY}/32 dev {network.interface}\n"
        f"link set {network.interface} up\n"
        f"route add {network.address}/32 dev {network.interface}\n"
    )
    if not ipv6:
        return lines

    return (
        f"{lines}"
        f"address add {GATEWAY6}/128 dev {network.interface} nodad\n"
        f"route add {address6_of(network.address)}/128 dev {network.interface}\n"
    )


def _inside(network: KernelNetwork, ipv6: bool) -> str:
    lines = (
        "link set lo up\n"
        f"address add {network.address}/32 dev eth0\n"
        "link set eth0 up\n"
        f"route add {GATEWAY} dev eth0 scope link\n"
        f"route add default via {GATEWAY} src {network.address}\n"
    )
    if not ipv6:
        return lines

    return (
        f"{lines}"
        f"address add {address6_of(network.address)}/128 dev eth0 nodad\n"
        f"route add {GATEWAY6}/128 dev eth0\n"
        f"route add ::/0 via {GATEWAY6} dev eth0\n"
    )


def _remove(network: KernelNetwork) -> None:
    """Remove a namespace whose processes have ended. Linux removes the veth pair with the
    namespace, but with a delay."""
    _run("ip", "link", "delete", network.interface)
    _run("ip", "netns", "delete", network.name)


def _listener_in(network: KernelNetwork, host: str) -> closing[socket.socket]:
    """A socket that listens in a namespace and stays there. Raises ``RuntimeFailed``."""
    made: list[socket.socket] = []
    failures: list[OSError] = []

    def enter_and_listen() -> None:
        try:
            enter_network(network.path)  # only this thread
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            made.append(socket.create_server((host, 0), family=family, dualstack_ipv6=":" in host))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=enter_and_listen, name="kernel-network.trial")
    thread.start()
    thread.join()
    if failures:
        raise _failed(f"cannot enter {network.path}: {failures[0]}")

    return closing(made[0])


def _uplinks() -> list[str]:
    """The interfaces with default routes."""
    routes = [line.split() for line in _read(Path("/proc/net/route")).splitlines()[1:]]
    return [fields[0] for fields in routes if fields[1] == "00000000"]


def _uplinks6() -> list[str]:
    """The same for IPv6."""
    routes = [line.split() for line in _read(Path("/proc/net/ipv6_route")).splitlines()]
    none = "0" * 32
    return sorted({fields[9] for fields in routes if fields[:2] == [none, "00"]} - {"lo"})


def _own_address6() -> str:
    """An IPv6 address at which others can reach this node. Raises ``RuntimeFailed``."""
    for line in _read(Path("/proc/net/if_inet6")).splitlines():
        digits, _, _, scope, _, interface = line.split()
        if scope == "00" and not interface.startswith(INTERFACES):
            return str(IPv6Address(int(digits, 16)))
    raise _failed(
        "no interface of this node has an IPv6 address other than loopback and link-local ones"
    )


def _mtu() -> int:
    sizes = [_read(Path(f"/sys/class/net/{name}/mtu")).strip() for name in _uplinks()]
    return min((int(size) for size in sizes if size.isdigit()), default=1500)


def _permit_forwarding(interfaces: str) -> None:
    """Let Linux forward packets, and let iptables accept the kernels' packets, because Docker and
    firewalls drop unknown ones. Moorage's own rules restrict kernels. Raises ``RuntimeFailed``."""
    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    try:
        if forwarding.read_text().strip() != "1":
            forwarding.write_text("1")
    except OSError as error:
        raise _failed(f"{forwarding}: {error}") from None

    _accept("iptables", interfaces)


def _permit_forwarding6(interfaces: str) -> None:
    """Permit forwarding for IPv6. A forwarding node ignores router advertisements unless it is
    configured otherwise, and would lose its routes to other hosts. Raises ``RuntimeFailed``."""
    settings = Path("/proc/sys/net/ipv6/conf")
    forwarding = settings / "all" / "forwarding"
    try:
        if forwarding.read_text().strip() != "1":
            for path in settings.glob("*/accept_ra"):
                is_of_kernels = path.parent.name.startswith(INTERFACES)
                if not is_of_kernels and path.read_text().strip() == "1":
                    path.write_text("2")

            forwarding.write_text("1")
    except OSError as error:
        raise _failed(f"{forwarding}: {error}") from None

    _accept("ip6tables", interfaces)


def _accept(program: str, interfaces: str) -> None:
    """Raises ``RuntimeFailed``."""
    if shutil.which(program, path=_path()) is None:
        return

    for chain, ways in (("FORWARD", ("-i", "-o")), ("INPUT", ("-i",))):
        if not _output(program, "-w", "-S", chain).startswith(f"-P {chain} DROP"):
            continue

        for way in ways:
            rule = (chain, way, f"{interfaces}+", "-j", "ACCEPT")
            if _run(program, "-w", "-C", *rule):
                _must(program, "-w", "-I", *rule)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _path() -> str:
    """PATH with the directories for administrators' programs, which the agent's PATH may lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _must(*argv: str, text: str = "") -> None:
    """Raises ``RuntimeFailed``."""
    if problem := _run(*argv, text=text):
        raise _failed(problem)


def _run(*argv: str, text: str = "") -> str:
    """Run a program. Returns its error message, or "" if it succeeds."""
    done = _execute(argv, text)
    if isinstance(done, str):
        return done
    return (
        ""
        if done.returncode == 0
        else f"{' '.join(argv[:3])}: {done.stderr.strip()[-300:] or done.returncode}"
    )


def _output(*argv: str) -> str:
    done = _execute(argv, "")
    return done if isinstance(done, str) else done.stdout


def _execute(argv: Sequence[str], text: str) -> subprocess.CompletedProcess[str] | str:
    program = shutil.which(argv[0], path=_path())
    if program is None:
        return f"{argv[0]} is not installed"

    try:
        return subprocess.run(
            [program, *argv[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]}: {error}"


def _failed(problem: str) -> RuntimeFailed:
    return RuntimeFailed(
        f"the network of a kernel cannot be set up: {problem}",
        next_step="it takes nftables and iproute2 (`apt install nftables iproute2`), and an agent "
        "that runs "
        "as root outside of a container; or use containers (runtime docker)",
    )
