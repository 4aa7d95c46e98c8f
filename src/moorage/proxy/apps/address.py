"""Addresses of apps: finds the app that a request is for. Pure.

An app has the path ``/apps/SESSION/APP/…`` and, if a domain is set, the host name
``APP--SESSION.DOMAIN``. A TCP tunnel to it is at ``/tunnel/SESSION/APP``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from moorage.common.model.service_ports import app_path

TUNNEL = "/tunnel/"

_BY_PATH = re.compile(r"/(apps|tunnel)/([^/?#]*)/?([^/?#]*)(/[^?#]*)?")
_LABEL = re.compile(r"([a-z][a-z0-9-]*?)--([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True)
class AppAddress:
    """The app that a request is for.

    ``path`` and ``query`` are unchanged from the client. ``subpath`` is the path within the app,
    empty if the address ends without a slash after the app's name. ``session_id`` and ``app`` are
    empty if they cannot be parsed.
    """

    session_id: str
    app: str
    path: str
    subpath: str
    query: str = ""
    by_host: bool = False
    tunnel: bool = False

    @property
    def prefix(self) -> str:
        return app_path(self.session_id, self.app)


def parse_address(host: str, target: str, domain: str) -> AppAddress | None:
    """Parse the address of an app; None if the request is not for an app.

    ``target``: path and query as received. ``domain``: the setting ``proxy.apps_domain``, empty if
    unset.
    """
    path, _, query = target.partition("?")
    if domain and (label := _host_label(host, domain)):
        match = _LABEL.fullmatch(label)
        app, session_id = match.groups() if match else (label, "")
        return AppAddress(session_id, app, path=path, subpath=path, query=query, by_host=True)

    if not path.startswith(("/apps/", TUNNEL)):
        return None

    match = _BY_PATH.fullmatch(path)
    if not match:
        return AppAddress("", "", path=path, subpath="", query=query)

    kind, session_id, app, subpath = match.groups()
    return AppAddress(
        session_id, app, path=path, subpath=subpath or "", query=query, tunnel=kind == "tunnel"
    )


def is_for_apps(host: str, target: str, domain: str) -> bool:
    """Whether a request is for an app. The arguments are the same as for ``parse_address``."""
    if not domain:
        return target.startswith(("/apps/", TUNNEL))
    return parse_address(host, target, domain) is not None


def _host_label(host: str, domain: str) -> str:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return name[: -len(domain) - 1].lower() if name.lower().endswith(f".{domain}") else ""


def client_scheme(own: str, forwarded: str, *, trusted: bool) -> str:
    """The scheme that the client uses, http or https. ``own``: this connection's scheme.
    ``forwarded``: the value of X-Forwarded-Proto, which is used only if the peer is ``trusted``."""
    return forwarded if trusted and forwarded in ("http", "https") else own


def local_path(path: str) -> str:
    """``path`` as a path on the same host, because browsers treat ``//name`` and ``/\\name`` as
    another host."""
    return "/" + path.lstrip("/\\")


def app_host(address: AppAddress, host: str, domain: str) -> str:
    """The app's own host name, with the port from ``host``, the request's Host header."""
    port = re.search(r":\d+$", host)
    return f"{address.app}--{address.session_id}.{domain}{port[0] if port else ''}"
