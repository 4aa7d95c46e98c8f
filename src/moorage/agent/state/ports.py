"""Port allocator for kernels: unused ports of one range, which are not reused immediately."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Container, Iterable, Sequence

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import MoorageError, StartupError
from moorage.common.model.service_ports import AppPort, ServicePort


class NoFreePort(MoorageError):
    """There is no free port for the kernel."""

    code = "port-taken"


class PortAllocator:
    """The allocator. ``port_range``: ``low-high``, both included. ``host``: the address that
    kernels listen on; ports in use there are skipped.

    A released port is not reused for ``cooldown_s`` seconds, so that a client of the old kernel
    does not reach the new one. If no other port is free, it is reused earlier. ``seed`` makes
    agents that share a node and a range start at different ports.
    """

    def __init__(
        self, port_range: str, host: str, *, clock: Clock, seed: str = "", cooldown_s: float = 60
    ) -> None:
        low, _, high = port_range.partition("-")
        self._port_range = port_range
        self._all = range(int(low), int(high) + 1)
        self._host = host
        self._clock = clock
        self._cooldown_s = cooldown_s
        self._next = zlib.crc32(seed.encode()) % len(self._all)
        self._allocated: set[int] = set()
        self._released_at: dict[int, float] = {}

    def check_host(self) -> None:
        """Check the host. Raises ``StartupError`` if kernels could not listen on it."""
        try:
            _bind(self._host, 0)
        except OSError as error:
            raise StartupError(
                f"agent.address = {self._host!r}: kernels cannot listen there: {error}",
                next_step="set agent.address to an address or host name of this node",
            ) from None

    def reserve(self, ports: Iterable[int]) -> None:
        """Mark the ports of existing kernels as allocated."""
        self._allocated.update(port for port in ports if port)

    def reclaimable(self, apps: Sequence[AppPort]) -> tuple[AppPort, ...]:
        """The service ports of an orphaned kernel that this agent may have allocated. A program can
        claim any port in its environment, and this keeps it from taking another kernel's port."""
        return tuple(
            app for app in apps if app.port in self._all and app.port not in self._allocated
        )

    def allocate(self, avoid: Container[int] = ()) -> int:
        """Allocate a port that is not in ``avoid``. Raises ``NoFreePort``."""
        now = self._clock.monotonic()
        order = [self._all[(self._next + i) % len(self._all)] for i in range(len(self._all))]
        free = [port for port in order if port not in self._allocated and port not in avoid]
        cooled_down = [
            port
            for port in free
            if now - self._released_at.get(port, -self._cooldown_s) >= self._cooldown_s
        ]
        cooling_down = sorted(
            set(free) - set(cooled_down), key=lambda port: self._released_at[port]
        )
        for port in (*cooled_down, *cooling_down):
            try:
                _bind(self._host, port)
            except OSError:
                continue

            self._allocated.add(port)
            self._next = self._all.index(port) + 1
            return port

        raise NoFreePort(
            f"none of the ports {self._port_range} is free on {self._host}: "
            f"{len(self._allocated)} are held by kernels, the others by other programs",
            next_step="widen agent.port_range",
        )

    def allocate_service_ports(
        self, ports: Sequence[ServicePort], *, contained: bool, used_inside: Iterable[int] = ()
    ) -> tuple[AppPort, ...]:
        """Allocate a port on the node for each of ``ports``. ``contained``: the program has its
        container's ports to itself, except ``used_inside``. Raises ``NoFreePort``, in which case
        none is allocated."""
        avoid = {port for port in used_inside if port} | {
            p.port for p in ports if contained and p.port
        }
        apps: list[AppPort] = []
        try:
            for port in ports:
                if contained and port.port and port.port in used_inside:
                    raise NoFreePort(
                        f"port {port.port} of {port.name!r} is already used in this container",
                        next_step="declare another port for it",
                    )

                node_port = self.allocate(avoid=avoid)
                inner = port.port if contained and port.port else node_port
                apps.append(
                    AppPort(
                        port.name,
                        node_port,
                        protocol=port.protocol,
                        base_path=port.base_path,
                        inner=inner,
                        guarded=port.guarded,
                    )
                )
        except NoFreePort:
            for app in apps:
                self._allocated.discard(app.port)
            raise

        return tuple(apps)

    def release(self, port: int) -> None:
        if port in self._allocated:
            self._allocated.remove(port)
            self._released_at[port] = self._clock.monotonic()


def is_free(host: str, port: int) -> bool:
    """Return whether a kernel could listen on this port. Port 0 means any port."""
    try:
        _bind(host, port)
    except OSError:
        return False
    return True


def _bind(host: str, port: int) -> None:
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, proto) as probe:
        # As in engines, a port with a listener is in use, but an earlier kernel's lingering
        # connections do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
