"""Service ports: network services of a session, such as a notebook or a database. Pure.

In options and image labels, a port is written ``NAME[:PORT][/PROTOCOL][+path][+key]``, and several
are separated by commas, such as ``jupyter:8888,ssh:22/tcp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from moorage.common.model.errors import InvalidInput

Protocol = Literal["http", "tcp"]
# The name, two dashes and a session id form one DNS label, which can have at most 63 characters.
NAME_PATTERN = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
NAME_LENGTH = 24
MAX_PORTS = 16
# Label in which an image declares its service ports.
IMAGE_LABEL = "moorage.service-ports"

# Tunnel over WebSocket. Binary messages carry the bytes of a TCP connection. A text message marks
# the end of one direction, because TCP can be half-closed and WebSocket cannot.
TUNNEL_PROTOCOL = "moorage.tcp.v1"
TUNNEL_EOF = "eof"

_PATTERN = re.compile(r"([^:/+]+)(?::([0-9]{1,5}))?(?:/(http|tcp))?((?:\+(?:path|key))*)")
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class ServicePort:
    """Declared service port.

    ``port`` is where the program listens in its container; 0 means that Moorage assigns it.
    ``base_path``: the program knows the path prefix at which it is served, so the proxy keeps the
    prefix. ``guarded``: the program requires the session's key, so the proxy adds it.
    """

    name: str
    port: int = 0
    protocol: Protocol = "http"
    base_path: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class AppPort:
    """Assigned service port: the program listens on ``inner``, which the agent publishes as
    ``port``. Both are 0 while only the program's own node could know them."""

    name: str
    port: int
    protocol: Protocol = "http"
    base_path: bool = False
    inner: int = 0
    guarded: bool = False


def parse_port(text: str) -> ServicePort:
    """Parse the written form of one port. Raises ``InvalidInput`` with the expected form."""
    found = _PATTERN.fullmatch(text.strip())
    if not found:
        raise InvalidInput(
            f"{text!r} is not a service port",
            next_step="write it like jupyter, jupyter:8888 or ssh:22/tcp; add +path if the "
            "program knows its "
            "base path, +key if it requires the session's key",
        )

    name, port, protocol, traits = found.groups()
    kind: Protocol = "tcp" if protocol == "tcp" else "http"
    declared = ServicePort(
        name, int(port or 0), protocol=kind, base_path="+path" in traits, guarded="+key" in traits
    )
    problem = "port 0 is not 1 to 65535" if port and not int(port) else find_problem([declared])
    if problem:
        raise InvalidInput(
            f"{text!r} is not a service port: {problem}", next_step="write it like jupyter:8888"
        )

    return declared


def parse_label(text: str) -> tuple[ServicePort, ...]:
    """Parse the ports that an image declares in its label. Raises ``InvalidInput``."""
    ports = tuple(parse_port(part) for part in text.split(",") if part.strip())
    if problem := find_problem(ports):
        raise InvalidInput(
            f"{text!r}: {problem}", next_step=f"change the image's label {IMAGE_LABEL}"
        )
    return ports


def find_problem(ports: Iterable[ServicePort]) -> str:
    """Return the first problem with the ports of one session, or ""."""
    ports = list(ports)
    if len(ports) > MAX_PORTS:
        return f"{len(ports)} ports exceed the maximum of {MAX_PORTS}"

    names = [p.name for p in ports]
    numbers = [p.port for p in ports if p.port]
    for port in ports:
        if not _NAME.fullmatch(port.name) or len(port.name) > NAME_LENGTH:
            return (
                f"name {port.name!r} must be 1 to {NAME_LENGTH} lowercase letters, digits and "
                "single dashes, "
                "and start with a letter"
            )

        if not 0 <= port.port <= 65535:
            return f"port {port.port} of {port.name!r} is not 1 to 65535"
        if names.count(port.name) > 1:
            return f"name {port.name!r} occurs twice"
        if port.port and numbers.count(port.port) > 1:
            return f"port {port.port} occurs twice"

        if (port.base_path or port.guarded) and port.protocol != "http":
            return (
                f"{port.name!r} is {port.protocol}: only http ports can have a base path or "
                "require a key"
            )

    return ""


def merge_ports(
    declared: Iterable[ServicePort], of_image: Iterable[ServicePort]
) -> tuple[ServicePort, ...]:
    """Merge requested ports with the image's. A requested name or port number takes precedence."""
    requested = tuple(declared)
    names = {p.name for p in requested}
    numbers = {p.port for p in requested if p.port}
    additional = (p for p in of_image if p.name not in names and p.port not in numbers)
    return (*requested, *additional)[:MAX_PORTS]


def app_path(session_id: str, name: str) -> str:
    """Return an app's path prefix on the proxy, without a trailing slash."""
    return f"/apps/{session_id}/{name}"


def port_token(name: str) -> str:
    """Placeholder for a service port number that is chosen where the program starts."""
    return f"@MOORAGE_PORT_{_variable_part(name)}@"


def _variable_part(name: str) -> str:
    return name.upper().replace("-", "_")


def _number(app: AppPort) -> str:
    return str(app.inner or app.port or port_token(app.name))


def environment(session_id: str, apps: Iterable[AppPort]) -> dict[str, str]:
    """Return the variables ``MOORAGE_PORT_<NAME>`` and, for http, ``MOORAGE_PATH_<NAME>``."""
    variables = {}
    for app in apps:
        name = _variable_part(app.name)
        variables[f"MOORAGE_PORT_{name}"] = _number(app)
        if app.protocol == "http":
            variables[f"MOORAGE_PATH_{name}"] = app_path(session_id, app.name)
    return variables


def placeholders(session_id: str, apps: Iterable[AppPort]) -> dict[str, str]:
    """Return the values of the command placeholders ``{port:NAME}`` and ``{path:NAME}``, by name
    without the braces."""
    found = {}
    for app in apps:
        found[f"port:{app.name}"] = _number(app)
        found[f"path:{app.name}"] = app_path(session_id, app.name)
    return found


def encode_ports(apps: Iterable[AppPort]) -> str:
    """Encode assigned ports as one string, for a label or an environment variable."""
    return ",".join(
        f"{a.name}:{a.inner}:{a.port}/{a.protocol}{'+path' * a.base_path}{'+key' * a.guarded}"
        for a in apps
    )


def decode_ports(text: str) -> tuple[AppPort, ...]:
    """Decode the output of ``encode_ports``. Raises ``ValueError`` for anything else."""
    found = []
    for part in text.split(",") if text else ():
        name, inner, rest = part.split(":")
        port, _, end = rest.partition("/")
        protocol, *traits = end.split("+")
        kind: Protocol = "tcp" if protocol == "tcp" else "http"
        found.append(
            AppPort(
                name,
                int(port),
                protocol=kind,
                base_path="path" in traits,
                inner=int(inner),
                guarded="key" in traits,
            )
        )

    return tuple(found)


def decode_untrusted_ports(text: str) -> tuple[AppPort, ...]:
    """Decode ports from a place that programs can write to; () if the text is not valid."""
    try:
        return decode_ports(text)
    except ValueError:
        return ()
