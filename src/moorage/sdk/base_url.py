"""Addresses of managers and proxies, split into what a connection needs.

The standard library does it, because importing yarl takes a tenth of the CPU of a short command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
# Characters of a path that stay as they are: those of RFC 3986, and "%" of what is encoded already.
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"


@dataclass(frozen=True)
class BaseUrl:
    """``https://moorage.example.org:8700/prefix``.

    ``host``: a name in ASCII, or an address without brackets. ``authority``: host and port as in
    the ``Host`` header. ``path``: encoded, without a slash at its end; "" without a prefix.
    """

    scheme: str
    host: str
    port: int
    authority: str
    path: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises ``ValueError`` if ``url`` is not an http or https URL with a host. User name,
        password, query and fragment are left out."""
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https URL with a host")

        host = parts.hostname
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        if not all("!" <= letter <= "~" for letter in host):
            raise ValueError(f"the host {host!r} contains characters that hosts cannot have")

        authority = f"[{host}]" if ":" in host else host
        if parts.port is not None:
            authority = f"{authority}:{parts.port}"

        return cls(
            scheme=parts.scheme,
            host=host,
            port=_DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port,
            authority=authority,
            path=quote(parts.path.rstrip("/"), safe=_PATH_CHARACTERS),
        )

    @property
    def origin(self) -> str:
        """The URL without its path."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"
