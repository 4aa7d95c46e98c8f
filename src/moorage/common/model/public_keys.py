"""Users' public keys, as OpenSSH writes them to ``.pub`` files. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

MAX_LENGTH = 8192
MIN_RSA_BITS = 2048
# Length of the point or key in the blob, after the names; None means any.
_KINDS: dict[str, tuple[str, int | None]] = {
    "ssh-ed25519": ("", 32),
    "sk-ssh-ed25519@openssh.com": ("", 32),
    "ecdsa-sha2-nistp256": ("nistp256", 65),
    "ecdsa-sha2-nistp384": ("nistp384", 97),
    "ecdsa-sha2-nistp521": ("nistp521", 133),
    "sk-ecdsa-sha2-nistp256@openssh.com": ("nistp256", 65),
    "ssh-rsa": ("", None),
}
KEY_TYPES = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """``text``: type and key, without the comment."""

    text: str
    comment: str
    fingerprint: str


def parse_public_key(line: str) -> PublicKey:
    """Parse a public key. Raises ``ValueError`` with the reason unless it is a single public key
    that may log in."""
    text = line.strip()
    if "PRIVATE KEY" in text:
        raise ValueError(
            "it is a private key, which must stay secret; send the file whose name ends in .pub"
        )

    if "\n" in text or len(text) > MAX_LENGTH:
        raise ValueError("it must be one line, as in ~/.ssh/id_ed25519.pub")

    kind, _, rest = text.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if kind.endswith("-cert-v01@openssh.com"):
        raise ValueError("it is a certificate; send the public key that it certifies")
    if kind not in _KINDS:
        raise ValueError(f"the key type {kind[:60]!r} is not one of {', '.join(KEY_TYPES)}")

    try:
        blob = base64.b64decode(encoded, validate=True)
        _check(kind, read_strings(blob))
    except binascii.Error:
        raise ValueError("the key after its type is not base64") from None

    return PublicKey(
        f"{kind} {base64.b64encode(blob).decode()}", comment.strip()[:200], fingerprint_of(blob)
    )


def fingerprint_of(blob: bytes) -> str:
    """Fingerprint, as ``ssh-keygen -l`` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_strings(blob: bytes) -> list[bytes]:
    """Read the strings in the SSH encoding of a key or signature. Raises ``ValueError``."""
    fields = []
    at = 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4])
        fields.append(blob[at + 4 : at + 4 + size])
        at += 4 + size

    if at != len(blob) or not fields:
        raise ValueError("the key is truncated")

    return fields


def _check(kind: str, fields: list[bytes]) -> None:
    if fields[0] != kind.encode():
        raise ValueError(f"the key is not of type {kind}, which precedes it")

    curve, size = _KINDS[kind]
    expected = 3 if size is None or curve else 2
    if kind.startswith("sk-"):
        expected += 1  # the application
    if len(fields) != expected:
        raise ValueError(f"the key has {len(fields)} parts; keys of type {kind} have {expected}")

    if size is None:
        bits = int.from_bytes(fields[2]).bit_length()
        if bits < MIN_RSA_BITS:
            raise ValueError(f"the RSA key has {bits} bits; at least {MIN_RSA_BITS} are needed")

        return

    if curve and fields[1] != curve.encode():
        raise ValueError(f"the curve of the key is not {curve}")
    if len(fields[2 if curve else 1]) != size:
        raise ValueError("the key is truncated")
