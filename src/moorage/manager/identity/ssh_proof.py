"""Proof that the person who registers a public key holds the private key. Pure. ¶ The proof is a
signature of a challenge, which names the user, the installation and the time, so that it is
worthless elsewhere or later."""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.common.model.errors import InvalidInput
from moorage.common.model.public_keys import PublicKey, fingerprint_of, parse_public_key
from moorage.common.views.ssh_keys import SSH_KEY_NAMESPACE, SshKeySpec
from moorage.manager.crypto.ssh_signatures import signer_of

VALID = timedelta(minutes=15)
# Maximum difference between the clocks of two managers.
_SKEW = timedelta(minutes=1)
_NEXT = (
    "`moorage keys add-ssh FILE.pub` does all of it; by hand, sign the `challenge` of GET "
    f"/v1/ssh-keys/challenge: `ssh-keygen -Y sign -n {SSH_KEY_NAMESPACE} -f KEY CHALLENGE-FILE`"
)


def parse_key(text: str) -> PublicKey:
    """Parse a public key. Raises ``InvalidInput`` if it may not log in."""
    try:
        return parse_public_key(text)
    except ValueError as error:
        raise InvalidInput(
            f"public_key is not a public key that may log in: {error}",
            field="public_key",
            next_step="create one with `ssh-keygen -t ed25519`, and send its .pub file",
        ) from None


def challenge_of(user: str, installation: str, now: datetime) -> str:
    """The text that the user has to sign, within ``VALID`` from ``now``."""
    return _prefix(user, installation) + now.isoformat(timespec="seconds")


def check_proof(
    spec: SshKeySpec, fingerprint: str, user: str, installation: str, *, now: datetime
) -> None:
    """Raise ``InvalidInput`` unless the key with this fingerprint has signed a challenge of this
    user."""
    if spec.challenge is None or spec.signature is None:
        raise InvalidInput(
            "proof that you hold the private key is missing: `challenge` and `signature`",
            field="signature",
            next_step=_NEXT,
        )

    prefix = _prefix(user, installation)
    try:
        if not spec.challenge.startswith(prefix):
            raise ValueError
        age = now - datetime.fromisoformat(spec.challenge.removeprefix(prefix))
    except (ValueError, TypeError):  # TypeError if the time has no zone
        raise InvalidInput(
            f"challenge was not issued by this installation to user {user!r}",
            field="challenge",
            next_step=_NEXT,
        ) from None

    if not -_SKEW <= age <= VALID:
        raise InvalidInput(
            "challenge has expired", field="challenge", next_step="request and sign a new one"
        )

    # Editors and `echo` add a line feed at the end of the signed file.
    messages = [spec.challenge.encode() + end for end in (b"", b"\n")]
    try:
        signer = next(
            filter(
                None,
                (signer_of(spec.signature, message, SSH_KEY_NAMESPACE) for message in messages),
            )
        )
    except ValueError as error:
        raise InvalidInput(
            f"signature is not valid: {error}", field="signature", next_step=_NEXT
        ) from None
    except StopIteration:
        raise InvalidInput(
            "signature does not match this challenge and its key",
            field="signature",
            next_step=_NEXT,
        ) from None

    if fingerprint_of(signer) != fingerprint:
        raise InvalidInput(
            "signature was made with a key other than public_key",
            field="public_key",
            next_step=_NEXT,
        )


def _prefix(user: str, installation: str) -> str:
    return f"moorage ssh-key user={user} installation={installation} time="
