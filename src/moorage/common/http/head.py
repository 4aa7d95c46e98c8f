"""Guard for request heads: refuses heads that two HTTP parsers may read differently, and foreign
Host names. Pure.

An ambiguous head is refused instead of interpreted: an attacker needs only one server on the path
that interprets it differently (RFC 9112 §11.2). A listener on loopback answers only to this
machine's names, because a page in a browser can make its own name resolve to loopback (DNS
rebinding).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.common.model.addresses import is_loopback

_VERSIONS = frozenset({(1, 0), (1, 1)})
# Headers that may occur at most once, because programs differ in which of several values they use.
_SINGLE = frozenset(
    {
        b"api-key",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
        b"x-forwarded-host",
        b"x-forwarded-proto",
    }
)
# Programs behind CGI-like gateways read X_Api_Key as X-Api-Key. Moorage acts on headers with these
# names.
_WITHOUT_TWIN = _SINGLE | {
    b"connection",
    b"cookie",
    b"proxy-authorization",
    b"sec-websocket-key",
    b"x-forwarded-for",
    b"x-forwarded-prefix",
    b"x-request-id",
}
_REMEMBERED_HOSTS = 256


@dataclass(frozen=True, slots=True)
class HeadRefusal:
    """``status``: the response's status. ``detail``: the error, as part of a sentence."""

    status: int
    detail: str


class HeadGuard:
    """Checks heads for one listener. ``host``: the address it listens on. ``names``: additional
    names in the Host header; a name that starts with a dot includes its subdomains. ``setting``:
    the setting that contains these names, for the error message."""

    def __init__(self, host: str, names: Iterable[str] = (), *, setting: str) -> None:
        self._checks_host = is_loopback(host)
        self._setting = setting
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._known: set[str] = set()

    def find_problem(
        self, version: tuple[int, int], names: Iterable[bytes], host: str
    ) -> HeadRefusal | None:
        """Find an error in a head. ``version``: the HTTP version. ``names``: the name of each
        header line. ``host``: the value of Host, "" if there is none."""
        if version not in _VERSIONS:
            return HeadRefusal(
                505, f"HTTP/{version[0]}.{version[1]} is not supported; send HTTP/1.1"
            )

        lower = [name.lower() for name in names]
        if len(set(lower)) != len(lower):
            seen: set[bytes] = set()
            for name in lower:
                if name in seen and name in _SINGLE:
                    return HeadRefusal(400, f"the header {name.decode()} is repeated; send it once")
                seen.add(name)

        if b"_" in b"".join(lower):
            for name in lower:
                if b"_" in name and name.replace(b"_", b"-") in _WITHOUT_TWIN:
                    return HeadRefusal(
                        400, f"the header {name.decode()} is ambiguous; write it with hyphens"
                    )

        if self._checks_host and host not in self._known:
            return self._check_host(host)

        return None

    def _check_host(self, host: str) -> HeadRefusal | None:
        name = _without_port(host).lower().rstrip(".")
        if not (
            not name
            or is_loopback(name)
            or name.endswith(".localhost")
            or name in self._names
            or any(known.startswith(".") and name.endswith(known) for known in self._names)
        ):
            return HeadRefusal(
                421,
                f"{host[:128]!r} is not a name of this address, which only this machine can reach; "
                f"add it to {self._setting} if a web server here forwards requests for it",
            )

        if len(self._known) < _REMEMBERED_HOSTS:
            self._known.add(host)

        return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
