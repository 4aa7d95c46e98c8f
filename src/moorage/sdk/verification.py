"""Verification of servers by clients, with the system's authorities and one specified by the
user."""

from __future__ import annotations

import ssl

from moorage.common.model.errors import ConfigError
from moorage.sdk.errors import Unreachable


def verification(url: str, ca_file: str | None, *, verify: bool = True) -> ssl.SSLContext | None:
    """How to verify the server at ``url``; None without TLS. Raises ``ConfigError`` for a bad CA
    file."""
    if not url.startswith("https:"):
        return None

    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is not None:
        _trust(context, ca_file)

    return context


def untrusted(url: str, error: Exception) -> Unreachable:
    return Unreachable(
        f"the certificate of {url} is not trusted ({error})",
        next_step="name its authority with --ca-file or MOORAGE_CA_FILE; `moorage up --tls` keeps "
        "its own in "
        "tls/ca.pem of the state directory",
    )


def _trust(context: ssl.SSLContext, ca_file: str) -> None:
    """Also trust the authorities in ``ca_file``."""
    # The links' CA was created without a key identifier, which Python 3.13 requires by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the CA file {ca_file!r} cannot be used: {error}",
            next_step="give one in PEM with --ca-file or MOORAGE_CA_FILE; `moorage up --tls` "
            "keeps its own in tls/ca.pem of the state directory",
        ) from error
