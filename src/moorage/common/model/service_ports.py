"""Service ports: what a session offers beside its main work, like a notebook or a database. Pure.

A port has one written form, in options and image labels: ``NAME[:PORT][/PROTOCOL][+path][+key]``, several
with commas between them, like ``jupyter:8888,ssh:22/tcp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from moorage.common.model.errors import InvalidInput

Protocol = Literal["http", "tcp"]
# With a session's id and two dashes it is a label of a host name, of which 63 characters are allowed.
NAME_PATTERN = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
NAME_LENGTH = 24
MOST_PORTS = 16
# By which an image says what it offers.
IMAGE_LABEL = "moorage.service-ports"

# Of a tunnel's WebSocket: binary messages are bytes of a TCP connection, and this text is the end of one
# direction, which TCP has and WebSocket has not.
TUNNEL_PROTOCOL, TUNNEL_EOF = "moorage.tcp.v1", "eof"

_FORM = re.compile(r"^([^:/+]+)(?::([0-9]{1,5}))?(?:/(http|tcp))?((?:\+(?:path|key))*)$")
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class ServicePort:
    """As declared. ``port``: where the program listens in its container, 0: where it is told to.
    ``base_path``: its program knows the path below which it is reached, so that stays on its requests.
    ``guarded``: its program lets in only who shows the session's key, so the proxy shows it."""

    name: str
    port: int = 0
    protocol: Protocol = "http"
    base_path: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class AppPort:
    """As given: the program listens on ``inner``, and the agent's address has it as ``port``."""

    name: str
    port: int
    protocol: Protocol = "http"
    base_path: bool = False
    inner: int = 0
    guarded: bool = False


def read_port(text: str) -> ServicePort:
    """Raises ``InvalidInput`` that shows the form."""
    found = _FORM.match(text.strip())
    if not found:
        raise InvalidInput(
            f"{text!r} is not a service port",
            next_step="write it like jupyter, jupyter:8888 or ssh:22/tcp; with +path if it knows its path, "
            "with +key if it asks for the session's key",
        )
    name, port, protocol, traits = found.groups()
    kind: Protocol = "tcp" if protocol == "tcp" else "http"
    declared = ServicePort(name, int(port or 0), kind, "+path" in traits, "+key" in traits)
    wrong = "port 0 is not 1 to 65535" if port and not int(port) else what_is_wrong([declared])
    if wrong:
        raise InvalidInput(f"{text!r} is not a service port: {wrong}", next_step="write it like jupyter:8888")
    return declared


def read_label(text: str) -> tuple[ServicePort, ...]:
    """What an image's label declares. Raises ``InvalidInput``."""
    ports = tuple(read_port(part) for part in text.split(",") if part.strip())
    if wrong := what_is_wrong(ports):
        raise InvalidInput(f"{text!r}: {wrong}", next_step=f"change the image's label {IMAGE_LABEL}")
    return ports


def what_is_wrong(ports: Iterable[ServicePort]) -> str:
    """Of one session's ports together; "" if nothing is."""
    ports = list(ports)
    if len(ports) > MOST_PORTS:
        return f"{len(ports)} ports are more than {MOST_PORTS}"
    names, numbers = [p.name for p in ports], [p.port for p in ports if p.port]
    for port in ports:
        if not _NAME.match(port.name) or len(port.name) > NAME_LENGTH:
            return (
                f"name {port.name!r} is not 1 to {NAME_LENGTH} small letters, digits and single dashes, "
                "beginning with a letter"
            )
        if not 0 <= port.port <= 65535:
            return f"port {port.port} of {port.name!r} is not 1 to 65535"
        if names.count(port.name) > 1:
            return f"name {port.name!r} is there twice"
        if port.port and numbers.count(port.port) > 1:
            return f"port {port.port} is there twice"
        if (port.base_path or port.guarded) and port.protocol != "http":
            return f"{port.name!r} is {port.protocol}: only requests of http have a path and can show a key"
    return ""


def merged(declared: Iterable[ServicePort], of_image: Iterable[ServicePort]) -> tuple[ServicePort, ...]:
    """What was asked for, and what the image adds under other names and ports."""
    asked = tuple(declared)
    names, numbers = {p.name for p in asked}, {p.port for p in asked if p.port}
    more = (p for p in of_image if p.name not in names and p.port not in numbers)
    return (*asked, *more)[:MOST_PORTS]


def app_path(session_id: str, name: str) -> str:
    """Below which a proxy has it; no slash at its end."""
    return f"/apps/{session_id}/{name}"


def environment(session_id: str, given: Iterable[AppPort]) -> dict[str, str]:
    """How the program is told: ``MOORAGE_PORT_<NAME>`` and, of http, ``MOORAGE_PATH_<NAME>``."""
    told = {}
    for app in given:
        name = app.name.upper().replace("-", "_")
        told[f"MOORAGE_PORT_{name}"] = str(app.inner or app.port)
        if app.protocol == "http":
            told[f"MOORAGE_PATH_{name}"] = app_path(session_id, app.name)
    return told


def words(session_id: str, given: Iterable[AppPort]) -> dict[str, str]:
    """The same for its command: ``{port:NAME}`` and ``{path:NAME}``."""
    found = {}
    for app in given:
        found[f"{{port:{app.name}}}"] = str(app.inner or app.port)
        found[f"{{path:{app.name}}}"] = app_path(session_id, app.name)
    return found


def to_mark(given: Iterable[AppPort]) -> str:
    """What was given, as one text; ``from_mark`` reads it."""
    return ",".join(
        f"{a.name}:{a.inner}:{a.port}/{a.protocol}{'+path' * a.base_path}{'+key' * a.guarded}" for a in given
    )


def from_mark(text: str) -> tuple[AppPort, ...]:
    """Raises ``ValueError`` for what is not of ``to_mark``'s making."""
    found = []
    for part in text.split(",") if text else ():
        name, inner, rest = part.split(":")
        port, _, end = rest.partition("/")
        protocol, *traits = end.split("+")
        kind: Protocol = "tcp" if protocol == "tcp" else "http"
        found.append(AppPort(name, int(port), kind, "path" in traits, int(inner), "key" in traits))
    return tuple(found)


def recognised(text: str) -> tuple[AppPort, ...]:
    """A mark from where a program writes what it likes; () for what is none."""
    try:
        return from_mark(text)
    except ValueError:
        return ()
