"""Labels by which an agent knows its containers again, and a seal that nobody else can make.

A label alone proves nothing: an image brings labels of its own, and whoever may use the engine writes what he
likes. The seal is a keyed hash over the container's name, which the engine gives only once.
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

KERNEL, OWNER, PORT, SEAL = "moorage.kernel", "moorage.agent", "moorage.port", "moorage.seal"
APPS = "moorage.apps"


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    kernel_id: KernelId
    port: int
    apps: tuple[AppPort, ...] = ()


class LabelSigner:
    """``key`` is the agent's secret; ``owner`` names the agent without telling it."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.owner = self._hash("owner")[:32]

    def labels(self, kernel_id: KernelId, port: int, apps: tuple[AppPort, ...] = ()) -> dict[str, str]:
        # As many words as there were before there were service ports: containers of then are known.
        more = (encode_ports(apps),) if apps else ()
        seal = self._hash(container_name(kernel_id), kernel_id, str(port), *more)
        named = {APPS: more[0]} if more else {}
        return {KERNEL: kernel_id, OWNER: self.owner, PORT: str(port), SEAL: seal} | named

    def read(self, name: str, labels: Mapping[str, str]) -> ContainerIdentity | None:
        """None if these labels of a container called ``name`` are not of our making."""
        kernel_id, port = KernelId(labels.get(KERNEL, "")), labels.get(PORT, "")
        apps = labels.get(APPS, "")
        seal, said = self._hash(name, kernel_id, port, *filter(None, (apps,))), labels.get(SEAL, "")
        genuine = hmac.compare_digest(seal.encode(), said.encode()) and name == container_name(kernel_id)
        return ContainerIdentity(kernel_id, int(port), decode_ports(apps)) if genuine else None

    def network(self, name: str) -> dict[str, str]:
        """Labels of a network of this agent."""
        return {OWNER: self.owner, SEAL: self._hash("network", name)}

    def made(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether these labels of a network called ``name`` are of our making."""
        seal, said = self._hash("network", name), labels.get(SEAL, "")
        return hmac.compare_digest(seal.encode(), said.encode())

    def _hash(self, *words: str) -> str:
        return hmac.new(self._key, "\n".join(words).encode(), hashlib.sha256).hexdigest()


def load_label_signer(path: Path, clock: Clock) -> LabelSigner:
    """With the key in ``path`` (mode 0600), made when it is not there. Blocks. Raises ``OSError``."""
    if not path.exists():
        fresh = path.with_name(f"{path.name}.{clock.new_id()}")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(clock.secret(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            with suppress(FileExistsError):
                os.link(fresh, path)  # whole or not at all, and never over another
        finally:
            fresh.unlink()
    return LabelSigner(path.read_text())
