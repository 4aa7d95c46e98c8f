"""Slot of a proxy worker: the descriptors that it inherits from its parent, and messages to the
parent."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

# Not a setting, because settings have names that start with MOORAGE_.
VARIABLE = "_MOORAGE_PROXY_WORKER"


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A slot. ``number``: of this worker, unique among running ones. Descriptors: of its listening
    socket, of the memory of the shared ledger, and of the socket to its parent."""

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
    """The slot of this process; None if it is not a worker."""
    given = environment.get(VARIABLE)
    return WorkerSlot(**json.loads(given)) if given else None
