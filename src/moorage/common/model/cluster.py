"""Cluster membership of a kernel: its role and rank, the addresses of the other kernels, the shared
SSH key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from moorage.common.model.ids import KernelId

Role = Literal["main", "sub"]
Mode = Literal["single-node", "multi-node"]
MAIN = "main1"
# Beginning of the detail of a session that continues without lost kernels.
WITHOUT = "without "


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """One kernel of a cluster. ``address`` is the address that its agent reports to the manager."""

    hostname: str
    address: str


@dataclass(frozen=True, slots=True)
class ClusterMembership:
    """Membership of one kernel in its session's cluster.

    ``members`` lists all kernels by rank, main1 first, including this kernel. ``group`` is the
    kernel id of main1; it is unique to one attempt of the session. ``index`` counts from 1 within
    the role. The key pair is ed25519, in OpenSSH's formats, and lives as long as the session.
    """

    hostname: str
    role: Role
    index: int
    mode: Mode
    group: KernelId
    members: tuple[ClusterMember, ...]
    private_key: str = field(default="", repr=False)
    public_key: str = ""

    @property
    def rank(self) -> int:
        """Rank, counted from 0, which is main1's."""
        return 0 if self.role == "main" else self.index
