"""Slot of a proxy worker: the descriptors inherited from its parent, and messages to the parent."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

# This is not a setting, because the names of settings start with MOORAGE_.
VARIABLE = "_MOORAGE_PROXY_WORKER"


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A slot. ``number``: this worker's number, unique among running workers. The descriptors are
    those of its listening socket, the shared ledger's memory, and the socket to its parent."""

    number: int
    listen_fd: int
    limits_fd: int
    parent_fd: int

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def inherited(self) -> tuple[int, ...]:
        return self.listen_fd, self.limits_fd, self.parent_fd

    def listening(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self.listen_fd))

    def tell(self, **message: object) -> None:
        """Send a line to the parent. Does nothing without a parent."""
        data = json.dumps(message).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.parent_fd, data) :]
        except OSError:
            return


def slot_of(environment: Mapping[str, str]) -> WorkerSlot | None:
    """This process's slot; None if it is not a worker."""
    given = environment.get(VARIABLE)
    return WorkerSlot(**json.loads(given)) if given else None
