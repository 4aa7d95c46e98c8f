"""Signed labels that identify an agent's containers and networks.

Labels alone prove nothing, because images also have labels, and every user of the engine can set
any label. The agent therefore signs its labels with an HMAC that includes the container's name,
which is unique per engine.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.runtimes.docker.container_config import container_name
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import AppPort, decode_ports, encode_ports

KERNEL = "moorage.kernel"
OWNER = "moorage.agent"
PORT = "moorage.port"
SIGNATURE = "moorage.signature"
APPS = "moorage.apps"


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    kernel_id: KernelId
    port: int
    apps: tuple[AppPort, ...] = ()


class LabelSigner:
    """A label signer. ``key``: the agent's secret. ``owner`` identifies the agent without revealing
    the key."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.owner = self._hash("owner")[:32]

    def labels(
        self, kernel_id: KernelId, port: int, apps: tuple[AppPort, ...] = ()
    ) -> dict[str, str]:
        encoded = encode_ports(apps) if apps else ""
        signature = self._hash(container_name(kernel_id), kernel_id, str(port), encoded)
        labels = {KERNEL: kernel_id, OWNER: self.owner, PORT: str(port), SIGNATURE: signature}
        return labels | ({APPS: encoded} if encoded else {})

    def read(self, name: str, labels: Mapping[str, str]) -> ContainerIdentity | None:
        """The identity of the container ``name``; None if this agent did not sign these labels."""
        kernel_id = KernelId(labels.get(KERNEL, ""))
        port = labels.get(PORT, "")
        apps = labels.get(APPS, "")
        expected = self._hash(name, kernel_id, port, apps)
        if not _is_signed(labels, expected) or name != container_name(kernel_id):
            return None
        return ContainerIdentity(kernel_id, int(port), decode_ports(apps))

    def network_labels(self, name: str) -> dict[str, str]:
        return {OWNER: self.owner, SIGNATURE: self._hash("network", name)}

    def owns_network(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether this agent signed these labels of the network ``name``."""
        return _is_signed(labels, self._hash("network", name))

    def _hash(self, *fields: str) -> str:
        return hmac.new(self._key, "\n".join(fields).encode(), hashlib.sha256).hexdigest()


def _is_signed(labels: Mapping[str, str], signature: str) -> bool:
    return hmac.compare_digest(signature.encode(), labels.get(SIGNATURE, "").encode())


def load_label_signer(path: Path, clock: Clock) -> LabelSigner:
    """Read the key from ``path``, or create it with mode 0600 if it is missing. Blocks. Raises
    ``OSError``."""
    if not path.exists():
        temporary = path.with_name(f"{path.name}.{clock.new_id()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(clock.secret(32))
            file.flush()
            os.fsync(file.fileno())

        try:
            with suppress(FileExistsError):
                os.link(temporary, path)  # atomic, and fails if another process has created it
        finally:
            temporary.unlink()

    return LabelSigner(path.read_text())
