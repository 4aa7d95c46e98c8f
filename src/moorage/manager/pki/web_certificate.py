"""Server certificate of the REST API and the OpenAI API, issued by the installation's own CA and
stored in files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.common.http.own_certificate import AUTHORITY, CERTIFICATE, KEY
from moorage.common.model.addresses import WILDCARDS
from moorage.manager.pki.authorities import Trust

_LIFETIME = timedelta(days=30)


class WebCertificate:
    """Files in ``home``/tls, issued at startup, again halfway through their validity, and when the
    CA is rotated.

    ``names``: host names and IP addresses in addition to those of this host.
    """

    def __init__(
        self, trust: Callable[[], Trust], clock: Clock, home: Path, names: Iterable[str]
    ) -> None:
        self._trust = trust
        self._clock = clock
        self._home = home
        self._issued_by: Trust | None = None
        own = ("localhost", "127.0.0.1", "::1", socket.gethostname(), *names)
        self._names = tuple(dict.fromkeys(name for name in own if name not in WILDCARDS))
        self._due = clock.now()

    async def renew(self) -> None:
        """Issue the certificate if it is due. Raises ``OSError``."""
        now = self._clock.now()
        trust = self._trust()
        if now < self._due and trust == self._issued_by:
            return

        key, certificate = trust.issuer.issue_server_certificate(self._names, now, _LIFETIME)
        _write(self._home / AUTHORITY, trust.bundle, 0o644)

        # A server that reads the files between the two writes finds a pair that does not match. It
        # keeps the old pair until it sees that the second file has changed.
        _write(self._home / KEY, key, 0o600)
        _write(self._home / CERTIFICATE, certificate, 0o644)
        self._due = now + _LIFETIME / 2
        self._issued_by = trust


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    new.replace(path)
