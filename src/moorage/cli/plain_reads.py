"""Plain reads of the REST API, for output that must be fast: lists in tables, and names for
completion.

Answers are decoded but not validated, because importing pydantic with the views' models takes more
CPU than the rest of ``moorage ps``. Importing asyncio, which this module avoids, would take as much
CPU as importing h11. A caller that finds an unexpected answer falls back to the SDK's client, which
reports the error.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode, urlsplit

import h11

import moorage
from moorage.common.local import proof
from moorage.common.local.paths import path_of_unix_url
from moorage.sdk.installation.connection import find_connection

if TYPE_CHECKING:
    import ssl

    from moorage.sdk.installation.connection import Connection

_CHUNK_BYTES = 256 * 1024
_PAGE = 500
# Errors of a read when the manager answers unexpectedly, or does not answer.
FAILURES = (OSError, ValueError, KeyError, TypeError, AttributeError, h11.ProtocolError)


class Record(dict[str, Any]):
    """A JSON object in an answer, whose fields are attributes like those of a view."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def created_at(self) -> datetime:
        return datetime.fromisoformat(self["created_at"])


class PlainReads:
    """A connection for sequential reads to the manager at the address given by the options.

    Opening it raises ``ConfigError`` and ``OSError``; a read raises one of ``FAILURES``.
    """

    def __init__(self, options: Mapping[str, str | None], *, timeout_s: float) -> None:
        at: Connection = find_connection(os.environ, **options)
        path = path_of_unix_url(at.url)
        base = urlsplit("http://localhost" if path is not None else at.url.rstrip("/"))
        self._path = base.path
        host = base.hostname
        if host is None:
            raise ValueError("the address has no host")

        if path is not None:
            self._socket = proof.connect(path, timeout_s=timeout_s)
        else:
            self._socket = socket.create_connection(
                (host, base.port or (443 if base.scheme == "https" else 80)), timeout_s
            )

        if base.scheme == "https":
            self._socket = _verified(self._socket, at, host)

        self._http = h11.Connection(h11.CLIENT)
        self._headers = [
            ("Host", base.netloc.rpartition("@")[2]),
            ("Accept", "*/*"),
            ("User-Agent", f"moorage/{moorage.__version__}"),
        ]
        if at.key:
            self._headers.append(("Authorization", f"Bearer {at.key}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def every(self, path: str, query: Mapping[str, str | None]) -> list[Record]:
        """The items on all pages of a list."""
        given = {name: value for name, value in query.items() if value is not None}
        found: list[Record] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.get(f"{path}?{urlencode(given | cursor | {'limit': str(_PAGE)})}")
            if page.get("unreadable"):
                raise ValueError("the manager cannot read all items")

            found += page["items"]
            if page["next"] is None:
                return found

            cursor = {"cursor": page["next"]}

    def get(self, target: str) -> Any:
        """The JSON at ``target``, a path with its query."""
        request = h11.Request(method="GET", target=self._path + target, headers=self._headers)
        self._socket.sendall(
            (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        )
        pieces: list[bytes] = []
        while not isinstance(event := self._next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response) and event.status_code != 200:
                raise ValueError(f"the answer has the status {event.status_code}")

            if isinstance(event, h11.Data):
                pieces.append(event.data)
            elif isinstance(event, h11.ConnectionClosed):
                raise ValueError("the connection was closed in mid-answer")

        if self._http.their_state is h11.DONE:
            self._http.start_next_cycle()

        return json.loads(b"".join(pieces), object_hook=Record)

    def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(self._socket.recv(_CHUNK_BYTES))
        return event


def read_lists(
    options: Mapping[str, str | None],
    lists: Sequence[tuple[str, Mapping[str, str | None]]],
    *,
    timeout_s: float,
) -> list[list[Record]]:
    """The items of each list, given by its path and query. Raises ``ConfigError`` and
    ``FAILURES``."""
    with PlainReads(options, timeout_s=timeout_s) as reads:
        return [reads.every(path, query) for path, query in lists]


def _verified(plain: socket.socket, at: Connection, host: str) -> ssl.SSLSocket:
    from moorage.sdk.verification import verification

    context = verification(at.url, at.ca_file)
    assert context is not None
    return context.wrap_socket(plain, server_hostname=host)
