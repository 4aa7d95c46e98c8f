"""Registration of agents and proxies: join tokens, first certificates and renewals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from moorage.common.aio.clock import Clock
from moorage.common.link.certificates import JoinToken, has_valid_signature
from moorage.common.model.errors import Forbidden
from moorage.common.views.peers import (
    CaView,
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    NewJoinTokenView,
    RotateCa,
)
from moorage.manager.crypto.authority import CertificateAuthority, read_csr
from moorage.manager.pki.authorities import Authorities, Trust
from moorage.manager.store.platform.peers import Peer
from moorage.manager.store.store import Store

_SEED_BYTES = 32


class Registration:
    """``lifetime``: validity of a peer's certificate. ``link_address``: the gRPC address that peers
    should dial; if it has no host, they use the host at which they reached the API.
    ``other_links``: the addresses of the other managers."""

    def __init__(
        self,
        store: Store,
        authorities: Authorities,
        clock: Clock,
        *,
        lifetime: timedelta,
        link_address: Callable[[], str],
        other_links: Callable[[], list[str]] = list,
    ) -> None:
        self._store = store
        self._authorities = authorities
        self._clock = clock
        self._lifetime = lifetime
        self._link_address = link_address
        self._other_links = other_links

    def now(self) -> datetime:
        """The current time, rounded down to a whole second as in certificates."""
        return self._clock.now().replace(microsecond=0)

    async def create_token(self, spec: JoinTokenSpec, *, actor: str) -> NewJoinTokenView:
        """Create a join token with its secret, which is not stored. Raises ``InvalidInput``."""
        seed = hashlib.sha256(self._clock.secret(_SEED_BYTES).encode()).digest()
        token = JoinToken(seed, (await self._authorities.refresh()).issuer.fingerprint)
        view = await self._store.peers.create_join_token(spec, token.verifier, actor=actor)
        return NewJoinTokenView(**view.model_dump(), secret=token.text)

    async def join(self, request: JoinRequest) -> JoinReply:
        """Register a peer and issue its first certificate.

        Raises ``Forbidden``, ``Conflict`` or ``InvalidInput``.
        """
        if not has_valid_signature(request):
            raise Forbidden(
                "the signature of the join request does not match its join token",
                next_step="join again with the complete token",
            )

        signing_request = read_csr(request.csr)
        now = self.now()
        trust = await self._authorities.refresh()
        joined = await self._store.peers.join(request, signing_request.digest, now + self._lifetime)
        sign = trust.issuer.sign_peer_certificate

        return JoinReply(
            id=joined.id,
            kind=request.kind,
            name=request.name,
            resource_group=joined.resource_group,
            certificate=sign(
                signing_request,
                request.kind,
                name=request.name,
                peer_id=joined.id,
                now=now,
                lifetime=self._lifetime,
            ),
            authority=trust.issuer.certificate,
            other_authorities=list(trust.others),
            link=self._link_address(),
            other_links=self._other_links(),
            now=now,
        )

    async def renew(self, peer_id: str, peer: Peer, csr: str, *, replaced: str) -> str | None:
        """Issue a certificate, in PEM, for a peer's new key, or return None if the peer has been
        revoked.

        ``replaced``: the digest of the key with which it is requested. Raises ``InvalidInput``."""
        signing_request = read_csr(csr)
        now = self.now()
        until = now + self._lifetime
        issuer = (await self._authorities.refresh()).issuer

        if not await self._store.peers.renew(
            peer_id, signing_request.digest, until, replaced=replaced, now=self._clock.now()
        ):
            return None

        return issuer.sign_peer_certificate(
            signing_request,
            peer.kind,
            name=peer.name,
            peer_id=peer_id,
            now=now,
            lifetime=self._lifetime,
        )

    async def rotate_ca(self, request: RotateCa, *, actor: str) -> CaView:
        """Start a rotation of the CA, or force the one in progress. Raises ``Conflict``."""
        return await self._authorities.rotate(request, actor=actor)

    async def ca(self) -> CaView:
        return await self._authorities.status()


class ManagerCertificate:
    """The manager's own certificate, renewed halfway through its validity while the manager runs,
    and when another CA becomes the issuer."""

    def __init__(self, trust: Callable[[], Trust], clock: Clock) -> None:
        self._trust = trust
        self._clock = clock
        self._issued: tuple[str, str, datetime] | None = None
        self._issuer: CertificateAuthority | None = None

    @property
    def authorities(self) -> str:
        """The CAs to trust, in PEM."""
        return self._trust().bundle

    def current(self) -> tuple[str, str]:
        """The key and certificate, in PEM. gRPC calls this from one of its threads."""
        now = self._clock.now()
        issuer = self._trust().issuer
        issued = self._issued
        if issued is None or now >= issued[2] or issuer is not self._issuer:
            issued = issuer.issue_manager_certificate(now)
            self._issued = issued
            self._issuer = issuer
        return issued[0], issued[1]
