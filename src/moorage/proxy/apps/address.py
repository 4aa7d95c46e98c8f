"""Which app a request means, and what it shows to be let in. Pure.

By path, ``/apps/SESSION/APP/…``; by host, ``APP--SESSION.DOMAIN``; its bytes, ``/tunnel/SESSION/APP``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from moorage.common.model.service_ports import app_path

COOKIE = "moorage-access-token"
ACCESS_TOKEN = "access_token"
TUNNEL = "/tunnel/"

_BY_PATH = re.compile(r"^/(apps|tunnel)/([^/?#]*)/?([^/?#]*)(/[^?#]*)?$")
_LABEL = re.compile(r"^([a-z][a-z0-9-]*?)--([0-9a-f-]{36})$")


@dataclass(frozen=True, slots=True)
class Asked:
    """``path`` and ``query`` as the client wrote them; ``rest`` is the path within the app, "" if it names
    the app without a slash behind it."""

    session_id: str
    app: str
    path: str
    rest: str
    query: str = ""
    by_host: bool = False
    tunnel: bool = False

    @property
    def prefix(self) -> str:
        return app_path(self.session_id, self.app)


@dataclass(frozen=True, slots=True)
class Shown:
    """What may be an access token or a key, each with where it stood. ``asked`` is without it."""

    asked: Asked
    by_query: tuple[str, ...]
    by_header: str
    by_cookie: tuple[str, ...]


def read(host: str, target: str, domain: str) -> Asked | None:
    """None for a request that means no app. ``target``: path and query as they came; ``domain``: the setting
    ``proxy.apps_domain``."""
    path, _, query = target.partition("?")
    if domain and (label := _label(host, domain)):
        found = _LABEL.match(label)
        app, session_id = found.groups() if found else (label, "")
        return Asked(session_id, app, path, path, query, by_host=True)
    if not path.startswith(("/apps/", TUNNEL)):
        return None
    parts = _BY_PATH.match(path)
    if not parts:
        return Asked("", "", path, "", query)
    kind, session_id, app, rest = parts.groups()
    return Asked(session_id, app, path, rest or "", query, tunnel=kind == "tunnel")


def _label(host: str, domain: str) -> str:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return name[: -len(domain) - 1].lower() if name.lower().endswith(f".{domain}") else ""


def shown(asked: Asked, headers: Mapping[str, str], cookies: Iterable[str]) -> Shown:
    """``cookies``: the values of all Cookie headers."""
    fields = asked.query.split("&") if asked.query else []
    access_tokens = tuple(f.partition("=")[2] for f in fields if f.partition("=")[0] == ACCESS_TOKEN)
    kept = "&".join(f for f in fields if f.partition("=")[0] != ACCESS_TOKEN)
    scheme, _, bearer = headers.get("Authorization", "").partition(" ")
    pairs = (pair.strip().partition("=") for line in cookies for pair in line.split(";"))
    return Shown(
        replace(asked, query=kept),
        access_tokens,
        bearer.strip() if scheme.lower() == "bearer" else "",
        tuple(value for name, _, value in pairs if name == COOKIE),
    )


def host_address(asked: Asked, host: str, domain: str) -> str:
    """The app's own host name, with the port by which the proxy was asked."""
    port = re.search(r":\d+$", host)
    return f"{asked.app}--{asked.session_id}.{domain}{port[0] if port else ''}"
