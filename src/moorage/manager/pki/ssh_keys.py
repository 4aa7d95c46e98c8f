"""The key pair by which the kernels of a cluster reach each other over SSH."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class SshKeyPair(NamedTuple):
    """ed25519, as OpenSSH keeps it in files: the private key in its own form, the public one as one line."""

    private_key: str
    public_key: str


def derive_key_pair(secret: str, comment: str) -> SshKeyPair:
    """Made of ``secret`` alone, which nobody else may know; ``comment`` ends the public line."""
    # It takes long to load, and only clusters need it.
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
