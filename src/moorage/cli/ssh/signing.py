"""Signatures with the user's own SSH keys. ``ssh-keygen`` makes them: it finds the private key in
its file, in the SSH agent or on a security key, and prompts for a passphrase or PIN."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from moorage.common.model.errors import InvalidInput


def sign(public_key: str, file: Path | None, message: str, namespace: str) -> str:
    """Sign. ``file``: the public key, with the private key beside it or in the SSH agent; None
    means that the SSH agent has the key. Raises ``InvalidInput`` if signing fails."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        if file is None:
            file = Path(folder) / "key.pub"
            file.write_text(f"{public_key}\n")

        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(file)]
        try:
            # Its prompts and errors go to the terminal.
            done = subprocess.run(
                command, input=message.encode(), stdout=subprocess.PIPE, check=False
            )
        except OSError as error:
            raise InvalidInput(
                f"cannot start ssh-keygen, which signs with the private key: {error.strerror}",
                next_step="install OpenSSH's client, 8.2 or newer",
            ) from None

    if done.returncode != 0 or not done.stdout:
        raise InvalidInput(
            "ssh-keygen did not sign with the private key of FILE",
            next_step=(
                "give the .pub file beside the private key, or load the private key into the SSH "
                "agent"
            ),
        )

    return done.stdout.decode()
