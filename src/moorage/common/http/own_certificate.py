"""Paths of the server certificate that a manager issues with the installation's own CA, and the
choice between it and configured files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from moorage.common.http.tls import ServerTls
from moorage.common.model.errors import ConfigError

AUTHORITY, CERTIFICATE, KEY = (
    Path("tls") / name for name in ("ca.pem", "server.pem", "server-key.pem")
)
"""Paths of the three files within a state directory."""


def client_ca_file(mode: Literal["off", "ca"], home: Path) -> str:
    """CA file that clients on this machine need; "" if none."""
    return str(home / AUTHORITY) if mode == "ca" else ""


def server_tls(
    section: Literal["manager", "proxy"],
    certificate: Path | None,
    key: Path | None,
    mode: Literal["off", "ca"],
    *,
    home: Path,
) -> ServerTls | None:
    """TLS files of a server: the configured ones, or with ``ca`` those of the installation's own
    CA. None means plain HTTP.

    Raises ``ConfigError``.
    """
    setting = f"{section}.tls"
    if (certificate is None) != (key is None):
        missing, given = ("key", "certificate") if key is None else ("certificate", "key")
        raise ConfigError(
            f"{setting}_{given} is set without {setting}_{missing}",
            next_step=f"set {setting}_{missing}, too",
        )

    if certificate is not None and key is not None:
        return ServerTls(certificate, key, setting=setting)
    if mode == "off":
        return None

    if not (home / CERTIFICATE).exists():
        raise ConfigError(
            f"common.tls is ca, but there is no {home / CERTIFICATE}, which a manager issues on "
            "its own host",
            next_step=(
                f"copy its directory tls/ to {home}, or set {setting}_certificate and {setting}_key"
            ),
        )

    return ServerTls(home / CERTIFICATE, home / KEY, setting=setting)
