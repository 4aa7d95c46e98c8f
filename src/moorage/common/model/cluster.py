"""What a kernel of a cluster knows of the others: where they are, who it is among them, their common key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from moorage.common.model.ids import KernelId

Role = Literal["main", "sub"]
MAIN = "main1"


@dataclass(frozen=True, slots=True)
class Peer:
    """One kernel of the cluster. ``address``: of its agent, as that one tells the manager."""

    hostname: str
    address: str


@dataclass(frozen=True, slots=True)
class Membership:
    """``peers``: all kernels by rank, main1 first, this one too. ``group``: the kernel id of main1, which no
    other start of any cluster has. ``index`` counts from 1 within the role.

    The key pair is ed25519, made once for the session, in the forms that OpenSSH reads.
    """

    hostname: str
    role: Role
    index: int
    mode: Literal["single-node", "multi-node"]
    group: KernelId
    peers: tuple[Peer, ...]
    private_key: str = field(default="", repr=False)
    public_key: str = ""

    @property
    def rank(self) -> int:
        """From 0, main1."""
        return 0 if self.role == "main" else self.index
