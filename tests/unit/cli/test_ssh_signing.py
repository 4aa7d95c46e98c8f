"""Signatures made with ``ssh-keygen``, which ``moorage keys add-ssh`` uses to prove that the user
holds the key."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from moorage.cli.ssh.signing import sign
from moorage.common.model.errors import InvalidInput
from moorage.manager.crypto.ssh_signatures import signer_of

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A public key file, with the private one beside it."""
    command = [
        "ssh-keygen",
        "-q",
        "-t",
        "ed25519",
        "-N",
        "",
        "-C",
        "laptop",
        "-f",
        str(tmp_path / "id"),
    ]
    subprocess.run(command, check=True)
    return tmp_path / "id.pub"


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def test_the_private_key_beside_the_file_signs(key: Path) -> None:
    armored = sign(key.read_text().strip(), key, "a challenge", "moorage")
    assert signer_of(armored, b"a challenge", "moorage") is not None


def test_without_the_private_key_nothing_is_signed(key: Path) -> None:
    key.with_suffix("").unlink()
    for file in (key, None):
        with pytest.raises(InvalidInput, match="did not sign"):
            sign(key.read_text().strip(), file, "a challenge", "moorage")


def test_a_missing_program_is_named(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidInput, match="ssh-keygen") as refused:
        sign("", key, "a challenge", "moorage")
    assert "install OpenSSH's client" in refused.value.next_step
