"""Verification of servers by clients: the system's authorities, and one that the user names."""

from __future__ import annotations

import ssl

import aiohttp

from moorage.common.model.errors import ConfigError
from moorage.sdk.errors import Unreachable


def verification(url: str, ca_file: str | None) -> ssl.SSLContext | bool:
    """The ``ssl`` argument of aiohttp for ``url``. Raises ``ConfigError`` for an unusable CA file."""
    if ca_file is None or not url.startswith("https:"):
        return True
    return _trusting(ca_file)


def untrusted(url: str, error: aiohttp.ClientConnectorCertificateError) -> Unreachable:
    return Unreachable(
        f"the certificate of {url} is not trusted ({error.certificate_error})",
        next_step="name its authority with --ca-file or MOORAGE_CA_FILE; `moorage up --tls` keeps its own in "
        "tls/ca.pem of the state directory",
    )


def _trusting(ca_file: str) -> ssl.SSLContext:
    """Trusts the system's authorities, and those in ``ca_file``."""
    context = ssl.create_default_context()
    # The links' CA was made without a key identifier, which Python 3.13 asks for by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the CA file {ca_file!r} cannot be used: {error}",
            next_step="give one in PEM with --ca-file or MOORAGE_CA_FILE; `moorage up --tls` "
            "keeps its own in tls/ca.pem of the state directory",
        ) from error
    return context
