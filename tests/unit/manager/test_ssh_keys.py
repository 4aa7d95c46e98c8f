"""Cluster SSH key pairs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from moorage.manager.crypto.ssh_keys import derive_key_pair


def test_key_pair_is_derived_from_the_secret() -> None:
    pair = derive_key_pair("secret", "moorage-s")
    loaded = load_ssh_private_key(pair.private_key.encode(), None)
    public = loaded.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert pair.public_key == f"{public} moorage-s"
    assert public.startswith("ssh-ed25519 ")
    assert derive_key_pair("secret", "moorage-s").public_key == pair.public_key
    assert derive_key_pair("another", "moorage-s").public_key != pair.public_key


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")
def test_openssh_reads_the_private_key(tmp_path: Path) -> None:
    pair = derive_key_pair("secret", "moorage-s")
    path = tmp_path / "id_ed25519"
    path.write_text(pair.private_key)
    path.chmod(0o600)
    result = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.split()[:2] == pair.public_key.split()[:2]
