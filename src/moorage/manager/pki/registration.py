"""Joining, and staying: what the API and the links ask of the CA and the store together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from moorage.common.aio.clock import Clock
from moorage.common.link.certificates import JoinToken, has_valid_signature
from moorage.common.model.errors import Forbidden
from moorage.common.views.peers import JoinReply, JoinRequest, JoinTokenSpec, NewJoinTokenView
from moorage.manager.pki.authority import Authority, read_csr
from moorage.manager.store.peers import Peer
from moorage.manager.store.store import Store

_SEED_BYTES = 32


class Registration:
    """``life``: of a peer's certificate. ``link``: the address of the gRPC link as peers should dial it,
    without a host if that is the one at which they reached the API."""

    def __init__(
        self, store: Store, authority: Authority, clock: Clock, *, life: timedelta, link: Callable[[], str]
    ) -> None:
        self._store, self._authority, self._clock = store, authority, clock
        self._life, self._link = life, link

    def now(self) -> datetime:
        """To the second, as certificates have it."""
        return self._clock.now().replace(microsecond=0)

    async def create_token(self, spec: JoinTokenSpec, *, actor: str) -> NewJoinTokenView:
        """With its secret, which is nowhere else. Raises ``InvalidInput``."""
        seed = hashlib.sha256(self._clock.secret(_SEED_BYTES).encode()).digest()
        token = JoinToken(seed, self._authority.fingerprint)
        view = await self._store.create_join_token(spec, token.verifier, actor=actor)
        return NewJoinTokenView(**view.model_dump(), secret=token.text)

    async def join(self, request: JoinRequest) -> JoinReply:
        """Raises ``Forbidden``, ``Conflict`` or ``InvalidInput``."""
        if not has_valid_signature(request):
            raise Forbidden(
                "the request to join is not signed with its token",
                next_step="join again, with the whole token",
            )
        asked, now = read_csr(request.csr), self.now()
        joined = await self._store.join(request, asked.digest, now + self._life)
        sign = self._authority.sign_peer
        return JoinReply(
            id=joined.id,
            kind=request.kind,
            name=request.name,
            resource_group=joined.resource_group,
            certificate=sign(asked, request.kind, request.name, joined.id, now, self._life),
            authority=self._authority.certificate,
            link=self._link(),
            now=now,
        )

    async def renew(self, peer_id: str, peer: Peer, csr: str) -> str | None:
        """A new certificate in PEM for a new key; None: it was revoked meanwhile. Raises ``InvalidInput``."""
        asked, now = read_csr(csr), self.now()
        if not await self._store.renew_peer(peer_id, asked.digest, now + self._life):
            return None
        return self._authority.sign_peer(asked, peer.kind, peer.name, peer_id, now, self._life)


class ManagerCertificate:
    """A manager's own, made anew from time to time: a manager may run for longer than it is good."""

    def __init__(self, authority: Authority, clock: Clock) -> None:
        self._authority, self._clock = authority, clock
        self._made: tuple[str, str, datetime] | None = None

    @property
    def authority(self) -> str:
        return self._authority.certificate

    def now(self) -> tuple[str, str]:
        """Key and certificate in PEM. Called from a thread of gRPC."""
        now = self._clock.now()
        made = self._made
        if made is None or now >= made[2]:
            self._made = made = self._authority.new_manager(now)
        return made[0], made[1]
