"""Signatures with the user's own SSH keys, made by ``ssh-keygen``: it finds the private key in its
file, in the SSH agent or on a security key, and asks for what it needs."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from moorage.common.model.errors import InvalidInput


def sign(public_key: str, file: Path | None, message: str, namespace: str) -> str:
    """``file``: of the public key, beside which the private one may be; None: the agent has it.
    Raises ``InvalidInput`` if there is no signature."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        if file is None:
            file = Path(folder) / "key.pub"
            file.write_text(f"{public_key}\n")

        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(file)]
        try:
            # Its questions and errors go to the terminal.
            done = subprocess.run(
                command, input=message.encode(), stdout=subprocess.PIPE, check=False
            )
        except OSError as error:
            raise InvalidInput(
                f"ssh-keygen, which signs with the private key, does not start: {error.strerror}",
                next_step="install OpenSSH's client, 8.2 or newer",
            ) from None

    if done.returncode != 0 or not done.stdout:
        raise InvalidInput(
            "ssh-keygen has not signed with the private key of FILE",
            next_step=(
                "give the .pub file that lies beside the private one, or load that into the "
                "SSH agent"
            ),
        )

    return done.stdout.decode()
