"""Keyring: the keys that encrypt stored secrets, in a file outside Postgres.

The file has one key per line, the newest first: secrets are encrypted with the first key and
decrypted with any. AES-256-GCM authenticates a secret together with its project and name, so that
rows cannot be swapped.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from moorage.common.aio.clock import Clock
from moorage.common.config.loader import load_or_create_secret
from moorage.common.model.errors import ConfigError

_SETTING = "manager.secrets_key_file"
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """An encrypted secret. ``data``: the nonce, then the ciphertext with its tag."""

    key_id: str
    data: bytes


class Keyring:
    """The keys in ``path``, which is created with mode 0600 when the first secret is encrypted.
    None means that there are no keys, and can be none."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    @property
    def path(self) -> Path:
        """Path of the file. Raises ``ConfigError`` if none is configured."""
        if self._path is None:
            raise ConfigError("no file with keys for secrets", next_step=f"set {_SETTING}")
        return self._path

    def ids(self) -> list[str]:
        """Ids of the keys, the newest first; none if there is no file. An id reveals nothing about
        its key."""
        return [_id(line) for line in self._lines()]

    def seal(self, text: str, project: str, name: str) -> SealedSecret:
        """Encrypt with the newest key. Raises ``ConfigError`` for a file that cannot be read or
        created."""
        line = load_or_create_secret(_SETTING, self.path, self._clock).split()[0]
        nonce = hashlib.sha256(self._clock.secret(32).encode()).digest()[:_NONCE_BYTES]
        ciphertext = _cipher(line).encrypt(nonce, text.encode(), _bound(project, name))
        return SealedSecret(_id(line), nonce + ciphertext)

    def open(self, sealed: SealedSecret, project: str, name: str) -> str:
        """Decrypt. Raises ``ConfigError`` if the file lacks the key, or the secret was not
        encrypted for this project and name."""
        for line in self._lines():
            if _id(line) == sealed.key_id:
                nonce = sealed.data[:_NONCE_BYTES]
                ciphertext = sealed.data[_NONCE_BYTES:]
                try:
                    return _cipher(line).decrypt(nonce, ciphertext, _bound(project, name)).decode()
                except InvalidTag:
                    raise ConfigError(
                        f"secret {name!r} of project {project!r} was altered in the database",
                        next_step=f"set it again with `moorage secrets set {name}`",
                    ) from None

        raise missing_keys(self.path, [sealed.key_id])

    def add_key(self) -> str:
        """Insert a new key before the others, and return its id."""
        line = self._clock.secret(32)
        self._write([line, *self._lines()])
        return _id(line)

    def keep_newest(self) -> None:
        """Remove all keys except the newest."""
        self._write(self._lines()[:1])

    def _lines(self) -> list[str]:
        """Read the file on each use, because another process may have added a key."""
        if self._path is None:
            return []

        try:
            return self._path.read_text().split()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"cannot read {_SETTING} from {self._path}: {error.strerror}"
            ) from error

    def _write(self, lines: list[str]) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{self._clock.new_id()}")
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def missing_keys(path: Path, key_ids: list[str]) -> ConfigError:
    """The error for secrets in Postgres that no key in ``path`` can decrypt."""
    return ConfigError(
        f"secrets in Postgres are encrypted with {', '.join(key_ids)}, which {path} does not "
        "contain",
        next_step=(
            "copy the file secrets-keys from a manager that has it; if the file is lost, run "
            "`moorage db rotate-secrets-key --discard-unreadable` and set the secrets again"
        ),
    )


def _id(line: str) -> str:
    return f"key-{_derive(line, b'moorage secrets key id').hex()[:12]}"


def _cipher(line: str) -> AESGCM:
    return AESGCM(_derive(line, b"moorage secrets"))


def _derive(line: str, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=purpose).derive(line.encode())


def _bound(project: str, name: str) -> bytes:
    """Names contain no NUL, so this is unambiguous."""
    return f"{project}\0{name}".encode()
