"""Rotation of the CA of the links: when it may continue. Pure.

A rotation has two states. While it is ``distributing``, the current CA issues certificates, and
peers learn to trust the next one. While it is ``reissuing``, the next CA has become the current one
and issues certificates; the previous one is still trusted until every peer has a new certificate.
Peers and managers therefore always trust each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.link.identity import certificate_fingerprint
from moorage.common.views.peers import PeerKind, RotationState
from moorage.manager.crypto.authority import EncryptedAuthority

# Other managers reread the authorities more often than this.
SETTLE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class StoredAuthorities:
    """``retiring`` is the previous CA's certificate, in PEM, and ``since`` the time at which the
    rotation last advanced."""

    current: EncryptedAuthority
    next: EncryptedAuthority | None = None
    retiring: str | None = None
    since: datetime | None = None

    @property
    def state(self) -> RotationState:
        if self.next is not None:
            return "distributing"
        return "steady" if self.retiring is None else "reissuing"

    @property
    def newest(self) -> EncryptedAuthority:
        return self.next or self.current

    @property
    def trusted(self) -> tuple[str, ...]:
        """Certificates, in PEM, of the CAs that peers and managers trust, starting with the issuing
        CA."""
        other = self.next.certificate if self.next is not None else self.retiring
        return (self.current.certificate,) if other is None else (self.current.certificate, other)


@dataclass(frozen=True, slots=True)
class PeerTrust:
    """``trusts``: fingerprints of the CAs that the peer reported as trusted; empty if its release
    does not report them. ``issuer``: fingerprint of the CA that issued the peer's most recently
    used certificate."""

    kind: PeerKind
    name: str
    trusts: frozenset[str]
    issuer: str | None


def find_waiting(authorities: StoredAuthorities, peers: Iterable[PeerTrust]) -> list[PeerTrust]:
    """Peers that would have to join again if the rotation now advanced."""
    newest = certificate_fingerprint(authorities.newest.certificate)
    match authorities.state:
        case "distributing":
            return [peer for peer in peers if newest not in peer.trusts]
        case "reissuing":
            return [peer for peer in peers if peer.issuer != newest]
        case _:
            return []


def may_go_on(authorities: StoredAuthorities, peers: Iterable[PeerTrust], now: datetime) -> bool:
    """Whether the rotation may advance to its next state."""
    if authorities.state == "steady":
        return False
    if authorities.since is not None and now < authorities.since + SETTLE:
        return False
    return not find_waiting(authorities, peers)
