"""TLS for connections between peers other than gRPC. Each side has a certificate from the links'
CA."""

from __future__ import annotations

import ssl
import tempfile
from typing import Any

from moorage.common.link.identity import Identity

# The object identifier of serverAuth in DER. Proxies of earlier releases have certificates without
# it.
_SERVER_AUTH = bytes.fromhex("06082b06010505070301")


def client_context(identity: Identity) -> ssl.SSLContext:
    """TLS context for a client. The peer is identified with ``peer_names``, because its certificate
    contains no address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    load(context, identity)
    return context


def server_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    load(context, identity)
    return context


def load(context: ssl.SSLContext, identity: Identity) -> None:
    """Use this identity in handshakes from now on."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=identity.authority)
    # OpenSSL reads keys only from files. This file is readable by its owner, and is removed
    # immediately.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(identity.key + identity.certificate)
        file.flush()
        context.load_cert_chain(file.name)


def may_serve(identity: Identity) -> bool:
    """Whether the certificate is valid for a server."""
    return _SERVER_AUTH in ssl.PEM_cert_to_DER_cert(identity.certificate)


def peer_names(certificate: Any) -> tuple[str, str, str]:
    """Kind, name and peer id in the peer's certificate, as returned by ``SSLObject.getpeercert``;
    empty strings for a foreign certificate."""
    for kind, uri in (certificate or {}).get("subjectAltName", ()):
        parts = uri.split(":")
        if kind == "URI" and len(parts) == 4 and parts[0] == "moorage":
            return parts[1], parts[2], parts[3]
    return "", "", ""
