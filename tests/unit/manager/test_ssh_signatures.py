"""Signatures made with SSH keys, including those of OpenSSH's own program, and proofs of
possession."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.ssh_signing import SshSigner, ssh_string

from moorage.common.model.errors import InvalidInput
from moorage.common.model.public_keys import fingerprint_of, parse_public_key
from moorage.common.views.ssh_keys import SshKeySpec
from moorage.manager.crypto.ssh_signatures import proves_login, signer_of, verify
from moorage.manager.identity.ssh_proof import challenge_of, check_proof

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
PLACE = "6fa1bd9e-0000-7000-8000-000000000000"
OPENSSH = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")


@OPENSSH
@pytest.mark.parametrize(
    "kind", ["ed25519", "ecdsa -b 256", "ecdsa -b 384", "ecdsa -b 521", "rsa -b 2048"]
)
def test_what_openssh_signs_is_accepted_and_nothing_else(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", *kind.split(), "-N", "", "-f", str(file)], check=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "moorage", "-f", f"{file}.pub"]
    armored = subprocess.run(
        command, input=b"message", capture_output=True, check=True
    ).stdout.decode()
    signer = signer_of(armored, b"message", "moorage")
    assert signer is not None
    line = file.with_suffix(".pub").read_text()
    assert fingerprint_of(signer) == parse_public_key(line).fingerprint
    assert signer_of(armored.replace("\n", "\r\n"), b"message", "moorage") == signer
    assert signer_of(armored, b"message\n", "moorage") is None
    with pytest.raises(ValueError, match="namespace"):
        signer_of(armored, b"message", "git")


def damaged(value: bytes) -> Iterator[bytes]:
    yield from (value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in range(len(value)))
    yield from (value[:at] for at in range(len(value)))
    yield value + b"\0"


def test_every_damaged_signature_and_key_is_refused() -> None:
    ann = SshSigner(1)
    good = ann.sign(b"data")
    assert verify(ann.blob, good, b"data")
    assert not any(verify(ann.blob, bad, b"data") for bad in damaged(good))
    assert not any(verify(bad, good, b"data") for bad in damaged(ann.blob))
    assert not verify(SshSigner(2).blob, good, b"data")
    armored = ann.armored("message")
    assert signer_of(armored, b"message", "moorage") == ann.blob
    body = base64.b64decode("".join(armored.splitlines()[1:-1]))
    for bad in damaged(body):
        text = f"-----BEGIN SSH SIGNATURE-----{base64.b64encode(bad).decode()}-----END SSH SIGNATURE-----"
        try:
            assert signer_of(text, b"message", "moorage") is None
        except ValueError:
            continue


def test_a_security_key_signs_its_flags_counter_and_application() -> None:
    """As FIDO does it: the signature covers hashes of the application and the message."""
    import hashlib

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    private = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    kind = b"sk-ssh-ed25519@openssh.com"
    key = ssh_string(kind) + ssh_string(raw) + ssh_string(b"ssh:")
    rest = b"\x01" + (7).to_bytes(4)
    signed = hashlib.sha256(b"ssh:").digest() + rest + hashlib.sha256(b"data").digest()
    good = ssh_string(kind) + ssh_string(private.sign(signed)) + rest
    assert verify(key, good, b"data")
    assert not any(verify(key, bad, b"data") for bad in damaged(good))
    assert not verify(key.replace(b"ssh:", b"web:"), good, b"data")


def test_a_login_is_proved_for_its_name_key_and_connection_only() -> None:
    ann = SshSigner(1)
    signed = ann.signed_login("vision/dev")
    signature = ann.sign(signed)
    assert proves_login("vision/dev", ann.blob, signed, signature)
    assert not proves_login("vision/other", ann.blob, signed, signature)
    assert not proves_login("vision/dev", SshSigner(2).blob, signed, signature)
    assert not proves_login(
        "vision/dev", ann.blob, ann.signed_login("vision/dev", b"t" * 32), signature
    )
    assert not any(proves_login("vision/dev", ann.blob, bad, signature) for bad in damaged(signed))
    for other in (b"", b"challenge", ann.signed_login("vision/dev", b""), ssh_string(b"s" * 32)):
        assert not proves_login("vision/dev", ann.blob, other, ann.sign(other))


def spec(signer: SshSigner, challenge: str, **how: str) -> SshKeySpec:
    return SshKeySpec(
        public_key=signer.public_key,
        challenge=challenge,
        signature=signer.armored(challenge, **how),
    )


def refusal(given: SshKeySpec, signer: SshSigner, user: str = "ann", place: str = PLACE) -> str:
    try:
        check_proof(given, fingerprint_of(signer.blob), user, place, now=NOW)
    except InvalidInput as error:
        return error.message
    return ""


def test_a_proof_is_of_the_user_the_installation_and_the_moment() -> None:
    ann = SshSigner(1)
    eve = SshSigner(2)
    challenge = challenge_of("ann", PLACE, NOW)
    good = spec(ann, challenge)
    assert refusal(good, ann) == ""
    assert refusal(spec(ann, challenge, hashed_with="sha256"), ann) == ""
    by_editor = good.model_copy(update={"signature": ann.armored(f"{challenge}\n")})
    assert refusal(by_editor, ann) == ""
    assert "a key other than" in refusal(spec(eve, challenge), ann)
    assert "not issued by this installation to user 'eve'" in refusal(good, ann, user="eve")
    assert "not issued by this installation" in refusal(good, ann, place=PLACE.replace("6", "7"))
    assert "namespace" in refusal(spec(ann, challenge, namespace="git"), ann)
    assert "does not match this challenge" in refusal(
        good.model_copy(
            update={"challenge": challenge_of("ann", PLACE, NOW - timedelta(seconds=1))}
        ),
        ann,
    )

    for age, message in ((15, ""), (16, "expired"), (-1, ""), (-2, "expired")):
        old = challenge_of("ann", PLACE, NOW - timedelta(minutes=age))
        assert message in refusal(spec(ann, old), ann)
        assert bool(refusal(spec(ann, old), ann)) == bool(message)

    for strange in ("", "2026-11-27", "2026-11-27T12:00:00", "x" * 900):
        text = challenge_of("ann", PLACE, NOW)[: -len("2026-11-27T12:00:00+00:00")] + strange
        assert "not issued by this installation" in refusal(spec(ann, text), ann)
    for missing in ({"challenge": None}, {"signature": None}):
        assert "is missing" in refusal(good.model_copy(update=missing), ann)

    assert "is not valid" in refusal(good.model_copy(update={"signature": "none"}), ann)
