"""Public keys that may log in over SSH, and the reasons why others may not."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.public_keys import parse_public_key


def line(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


ED25519 = line(ed25519.Ed25519PrivateKey.from_private_bytes(b"1" * 32))


@pytest.mark.parametrize(
    "text",
    [
        ED25519,
        line(ec.derive_private_key(7, ec.SECP256R1())),
        line(ec.derive_private_key(7, ec.SECP384R1())),
        line(ec.derive_private_key(7, ec.SECP521R1())),
        line(rsa.generate_private_key(65537, 2048)),
    ],
)
def test_keys_of_openssh_are_accepted_as_ssh_keygen_shows_them(text: str, tmp_path: Path) -> None:
    key = parse_public_key(f"{text}   ann@laptop \n")
    assert (key.text, key.comment) == (text, "ann@laptop")
    file = tmp_path / "key.pub"
    file.write_text(text)
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True
    )
    assert key.fingerprint in shown.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "key type ''"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END", "private key"),
        (f"{ED25519}\n{ED25519}", "one line"),
        (f'command="x" {ED25519}', "key type 'command="),
        (ED25519.replace("ssh-ed25519 ", "ssh-ed25519-cert-v01@openssh.com "), "certificate"),
        (ED25519.replace("ssh-ed25519 ", "ssh-rsa "), "not of type ssh-rsa"),
        ("ssh-ed25519 !!!!", "not base64"),
        ("ssh-ed25519", "truncated"),
        (
            f"ssh-ed25519 {base64.b64encode(base64.b64decode(ED25519.split()[1])[:-2]).decode()}",
            "truncated",
        ),
        (line(rsa.generate_private_key(65537, 1024)), "1024 bits; at least 2048"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "key type 'ssh-dss' is not one of"),
        ("ssh-ed25519 " + "A" * 9000, "one line"),
    ],
)
def test_what_may_not_log_in_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_public_key(text)


@given(st.binary(max_size=200), st.sampled_from(["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"]))
def test_any_bytes_are_a_key_or_refused(blob: bytes, kind: str) -> None:
    try:
        parse_public_key(f"{kind} {base64.b64encode(blob).decode()}")
    except ValueError:
        pass
