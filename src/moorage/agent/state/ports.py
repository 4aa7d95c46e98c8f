"""Ports for kernels: from one range, each really free, none given again at once."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Container, Iterable, Sequence

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import MoorageError, StartupError
from moorage.common.model.service_ports import AppPort, ServicePort


class NoPort(MoorageError):
    """No free port for the kernel."""

    code = "port-taken"


class Ports:
    """``span``: ``low-high``, both included. ``host``: where kernels listen; a port in use there is skipped.

    A released port rests for ``cooldown_s`` seconds, so that a client of the old kernel does not reach the
    new one; a resting port is still better than none. ``seed`` spreads agents that share a node and a range.
    """

    def __init__(self, span: str, host: str, *, clock: Clock, seed: str = "", cooldown_s: float = 60) -> None:
        low, _, high = span.partition("-")
        self._span = span
        self._all = range(int(low), int(high) + 1)
        self._host, self._clock, self._cooldown_s = host, clock, cooldown_s
        self._next = zlib.crc32(seed.encode()) % len(self._all)
        self._taken: set[int] = set()
        self._released: dict[int, float] = {}

    def check_host(self) -> None:
        """Raises ``StartupError`` if kernels could not listen there."""
        try:
            _bind(self._host, 0)
        except OSError as error:
            raise StartupError(
                f"agent.address = {self._host!r}: kernels cannot listen there: {error}",
                next_step="set agent.address to an address or host name of this node",
            ) from None

    def hold(self, ports: Iterable[int]) -> None:
        """Mark ports of kernels that were there before."""
        self._taken.update(port for port in ports if port)

    def recognised(self, apps: Sequence[AppPort]) -> tuple[AppPort, ...]:
        """Of what a kernel that nobody remembers is marked with, what may have come from here: a program can
        write what it likes into its environment, and none gets another's port by that."""
        return tuple(app for app in apps if app.port in self._all and app.port not in self._taken)

    def take(self, avoid: Container[int] = ()) -> int:
        """One that is not in ``avoid``. Raises ``NoPort``."""
        now = self._clock.monotonic()
        order = [self._all[(self._next + i) % len(self._all)] for i in range(len(self._all))]
        free = [port for port in order if port not in self._taken and port not in avoid]
        rested = [
            port for port in free if now - self._released.get(port, -self._cooldown_s) >= self._cooldown_s
        ]
        resting = sorted(set(free) - set(rested), key=lambda port: self._released[port])
        for port in (*rested, *resting):
            try:
                _bind(self._host, port)
            except OSError:
                continue
            self._taken.add(port)
            self._next = self._all.index(port) + 1
            return port
        raise NoPort(
            f"none of the ports {self._span} is free on {self._host}: "
            f"{len(self._taken)} are held by kernels, the others by other programs",
            next_step="widen agent.port_range",
        )

    def take_for(
        self, wanted: Sequence[ServicePort], *, contained: bool, inside: Iterable[int] = ()
    ) -> tuple[AppPort, ...]:
        """A port of the node for each of these. ``contained``: the program has its container's ports to
        itself, of which those ``inside`` are in use already. Raises ``NoPort``, and holds none of them."""
        used = {port for port in inside if port} | {port.port for port in wanted if contained and port.port}
        given: list[AppPort] = []
        try:
            for port in wanted:
                if contained and port.port and port.port in inside:
                    raise NoPort(
                        f"port {port.port} of {port.name!r} is given to another use in this container",
                        next_step="declare another port for it",
                    )
                mine = self.take(avoid=used)
                inner = port.port if contained and port.port else mine
                given.append(AppPort(port.name, mine, port.protocol, port.base_path, inner, port.guarded))
        except NoPort:
            for app in given:
                self._taken.discard(app.port)
            raise
        return tuple(given)

    def release(self, port: int) -> None:
        if port in self._taken:
            self._taken.remove(port)
            self._released[port] = self._clock.monotonic()


def is_free(host: str, port: int) -> bool:
    """Whether a kernel could listen there; port 0: on any port."""
    try:
        _bind(host, port)
    except OSError:
        return False
    return True


def _bind(host: str, port: int) -> None:
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, proto) as probe:
        # As engines do it: connections of the previous one that linger do not count, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
