"""SSH keys for tests, and signatures made with them in the format of ``ssh-keygen -Y sign``."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def ssh_string(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value


class SshSigner:
    """An ed25519 key that is different for each number."""

    def __init__(self, number: int) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(number.to_bytes(32))
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.blob = ssh_string(b"ssh-ed25519") + ssh_string(raw)
        self.public_key = f"ssh-ed25519 {base64.b64encode(self.blob).decode()}"

    @property
    def private_key(self) -> bytes:
        """The text of the key's file."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        return ssh_string(b"ssh-ed25519") + ssh_string(self._key.sign(data))

    def armored(self, message: str, namespace: str = "moorage", hashed_with: str = "sha512") -> str:
        digest = hashlib.new(hashed_with, message.encode()).digest()
        head = ssh_string(namespace.encode()) + ssh_string(b"") + ssh_string(hashed_with.encode())
        signature = self.sign(b"SSHSIG" + head + ssh_string(digest))
        blob = b"SSHSIG" + (1).to_bytes(4) + ssh_string(self.blob) + head + ssh_string(signature)
        text = base64.b64encode(blob).decode()
        lines = [text[at : at + 70] for at in range(0, len(text), 70)]
        return "\n".join(
            ["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]
        )

    def signed_login(self, login: str, session: bytes = b"s" * 32) -> bytes:
        """The data that an SSH client signs to log in."""
        parts = (login.encode(), b"ssh-connection", b"publickey")
        request = b"\x32" + b"".join(map(ssh_string, parts)) + b"\x01"
        return ssh_string(session) + request + ssh_string(b"ssh-ed25519") + ssh_string(self.blob)
