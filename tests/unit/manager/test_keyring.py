"""The keyring: encryption of stored secrets, and key rotation."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import ConfigError
from moorage.manager.secrets import Keyring, SealedSecret


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "secrets-keys", SystemClock())


def test_key_file_is_made_with_the_first_secret_for_its_owner_only(keyring: Keyring) -> None:
    assert keyring.ids() == []
    assert not keyring.path.exists()
    sealed = keyring.seal("hunter2", "vision", "token")
    assert stat.S_IMODE(keyring.path.stat().st_mode) == 0o600
    assert keyring.ids() == [sealed.key_id]
    assert b"hunter2" not in sealed.data
    assert keyring.open(sealed, "vision", "token") == "hunter2"


def test_the_same_text_is_encrypted_differently_each_time(keyring: Keyring) -> None:
    assert keyring.seal("a", "p", "n").data != keyring.seal("a", "p", "n").data


@pytest.mark.parametrize(
    ("project", "name"), [("vision", "other"), ("other", "token"), ("visiontoken", "")]
)
def test_a_secret_cannot_be_moved_to_another_row(keyring: Keyring, project: str, name: str) -> None:
    sealed = keyring.seal("hunter2", "vision", "token")
    with pytest.raises(ConfigError, match="altered"):
        keyring.open(sealed, project, name)


def test_altered_bytes_are_refused(keyring: Keyring) -> None:
    sealed = keyring.seal("hunter2", "vision", "token")
    for at in (0, 12, len(sealed.data) - 1):
        data = bytearray(sealed.data)
        data[at] ^= 1
        with pytest.raises(ConfigError, match="altered"):
            keyring.open(SealedSecret(sealed.key_id, bytes(data)), "vision", "token")


def test_old_keys_still_decrypt_until_they_are_removed(keyring: Keyring) -> None:
    old = keyring.seal("a", "p", "n")
    newest = keyring.add_key()
    assert keyring.ids() == [newest, old.key_id]
    assert keyring.seal("b", "p", "n").key_id == newest
    assert keyring.open(old, "p", "n") == "a"
    keyring.keep_newest()
    with pytest.raises(ConfigError, match=old.key_id):
        keyring.open(old, "p", "n")


def test_without_a_file_nothing_can_be_encrypted() -> None:
    keyring = Keyring(None, SystemClock())
    assert keyring.ids() == []
    with pytest.raises(ConfigError, match="no file"):
        keyring.seal("a", "p", "n")
