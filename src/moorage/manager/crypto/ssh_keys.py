"""SSH key pairs with which the kernels of a cluster reach each other."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class SshKeyPair(NamedTuple):
    """An ed25519 key pair in OpenSSH's file formats; the public key is one line."""

    private_key: str
    public_key: str


def derive_key_pair(secret: str, comment: str) -> SshKeyPair:
    """The key pair derived from ``secret``, with ``comment`` at the end of the public key's
    line."""
    # Imported here because it loads slowly and only clusters need it.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(secret.encode()).digest())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return SshKeyPair(private.decode(), f"{public.decode()} {comment}")
