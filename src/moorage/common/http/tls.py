"""TLS for the HTTP servers, from files that are reloaded when they change."""

from __future__ import annotations

import os
import select
import ssl
from pathlib import Path

import structlog

from moorage.common.model.errors import ConfigError

log = structlog.get_logger("moorage.tls")

_PAIR_ATTEMPTS = 40
_PAIR_INTERVAL_S = 0.05
Stamp = tuple[tuple[int, int, int], ...]


class ServerTls:
    """A certificate with its chain and its key, in PEM. Raises ``ConfigError`` if they cannot be
    used.

    Each handshake checks whether the files have changed, so a renewed certificate needs no restart.
    New files that cannot be used are logged, and the old ones stay in use. ``context`` is for the
    listener.
    """

    def __init__(self, certificate: Path, key: Path, *, setting: str) -> None:
        self._certificate = certificate.expanduser()
        self._key = key.expanduser()
        self._setting = setting
        try:
            self._stamp, self._current = self._load_pair()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{setting}_certificate = {str(certificate)!r} and its key {str(key)!r} are "
                "unusable: "
                f"{error}",
                next_step="name a certificate with its chain and the key that belongs to it, both "
                "in PEM and "
                "readable for this process",
            ) from error

        self.context = self._load()
        self.context.sni_callback = self._select

    def _load_pair(self) -> tuple[Stamp, ssl.SSLContext]:
        """Load both files. They are renewed one after the other, so this waits a moment if they do
        not match."""
        for _ in range(_PAIR_ATTEMPTS):
            stamp = self._read_stamp()
            try:
                return stamp, self._load()
            except ssl.SSLError as error:
                if error.reason != "KEY_VALUES_MISMATCH":
                    raise
                select.select([], [], [], _PAIR_INTERVAL_S)

        return self._read_stamp(), self._load()

    def _read_stamp(self) -> Stamp:
        stats = (os.stat(self._certificate), os.stat(self._key))
        return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in stats)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._key)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _select(self, connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        """Use the newest certificate. Called during each handshake."""
        try:
            stamp = self._read_stamp()
        except OSError:
            stamp = self._stamp  # they are being replaced

        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._current = self._load()
                log.info("certificate read again", certificate=str(self._certificate))
            except (OSError, ValueError) as error:
                log.error(
                    "the new certificate cannot be used; the old one stays in use",
                    certificate=str(self._certificate),
                    error=str(error),
                    next_step=(
                        f"correct the files of {self._setting}_certificate and {self._setting}_key"
                    ),
                )

        connection.context = self._current
