"""The CAs that a manager issues with and trusts, as stored in Postgres, and their rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from cryptography import x509

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.identity import certificate_fingerprint
from moorage.common.model.errors import Conflict
from moorage.common.views.peers import CaView, PeerRef, RotateCa
from moorage.manager.crypto.authority import CertificateAuthority
from moorage.manager.crypto.rotation import PeerTrust, StoredAuthorities, find_waiting, may_go_on
from moorage.manager.store.database.notifier import Topic
from moorage.manager.store.store import Store

log = structlog.get_logger("moorage.pki")

_POLL_S = 20.0


@dataclass(frozen=True)
class Trust:
    """``issuer``: the issuing CA. ``others``: certificates of the other trusted CAs, in PEM."""

    issuer: CertificateAuthority
    others: tuple[str, ...] = ()
    # Fingerprints of all the CAs, by their distinct names.
    fingerprints: Mapping[x509.Name, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        found = {
            x509.load_pem_x509_certificate(pem.encode()).subject: certificate_fingerprint(pem)
            for pem in self.certificates
        }
        object.__setattr__(self, "fingerprints", found)

    @property
    def certificates(self) -> tuple[str, ...]:
        return (self.issuer.certificate, *self.others)

    @property
    def bundle(self) -> str:
        return "".join(self.certificates)

    @property
    def issuer_fingerprint(self) -> str:
        return self.issuer.fingerprint.hex()


class Authorities:
    """``secret`` encrypts the keys. Every manager checks whether a rotation may continue; Postgres
    lets only one of them change its state. Raises the errors of ``CertificateAuthority``."""

    def __init__(self, store: Store, stored: StoredAuthorities, secret: str, clock: Clock) -> None:
        self._store = store
        self._secret = secret
        self._clock = clock
        self._stored = stored
        self._reading = asyncio.Lock()
        self.trust = self._load(stored, None)
        self.loop = Loop("manager.authorities", self.run_once, interval_s=_POLL_S, clock=clock)
        store.notifier.on(Topic.PEERS, self.loop.nudge)

    @classmethod
    async def open(cls, store: Store, secret: str, clock: Clock) -> Authorities:
        stored = await store.authorities.get_or_create(
            lambda: CertificateAuthority.create(secret, clock.now())
        )
        return cls(store, stored, secret, clock)

    def _load(self, stored: StoredAuthorities, before: Trust | None) -> Trust:
        issuer, *others = stored.trusted
        if before is not None and before.issuer.certificate == issuer:
            return Trust(before.issuer, tuple(others))
        return Trust(CertificateAuthority(stored.current, self._secret), tuple(others))

    async def refresh(self) -> Trust:
        """Read changes that another manager may have made. Raises ``StoreUnavailable``."""
        async with self._reading:
            stored = await self._store.authorities.get()
            if stored is not None and stored != self._stored:
                self.trust = self._load(stored, self.trust)
                self._stored = stored
                log.info("certificate authorities changed", state=stored.state)
            return self.trust

    async def run_once(self) -> None:
        """Advance the rotation if it may continue."""
        await self.refresh()
        if self._stored.state != "steady":
            now = self._clock.now()
            if may_go_on(self._stored, await self._store.authorities.peers(now), now):
                await self._go_on(force=False)

    async def rotate(self, request: RotateCa, *, actor: str) -> CaView:
        """Start a rotation, or check immediately whether the one in progress may continue. Raises
        ``Conflict``."""
        await self.refresh()
        state = self._stored.state
        if request.force is None:
            if state == "steady":
                now = self._clock.now()
                new = CertificateAuthority.create(self._secret, now)
                if await self._store.authorities.add_next(new, now, actor=actor):
                    log.warning("rotation of the CA started", actor=actor)

            await self.run_once()
            return await self.status()

        if request.force != state:
            raise Conflict(
                f"the rotation of the CA is {state}, not {request.force}",
                next_step="`moorage peers rotate-ca --status` shows it",
            )

        left = await self._waiting()
        if await self._go_on(force=True):
            log.warning(
                "rotation of the CA forced", state=state, actor=actor, peers=[p.name for p in left]
            )

        return (await self.status()).model_copy(update={"join_again": _refs(left)})

    async def status(self) -> CaView:
        await self.refresh()
        stored = self._stored
        issuer, other = [*map(certificate_fingerprint, stored.trusted), None][:2]
        assert issuer is not None

        return CaView(
            state=stored.state,
            since=stored.since,
            issuer=issuer,
            other=other,
            waiting_for=_refs(await self._waiting()),
        )

    async def _waiting(self) -> list[PeerTrust]:
        return find_waiting(self._stored, await self._store.authorities.peers(self._clock.now()))

    async def _go_on(self, *, force: bool) -> bool:
        stored = self._stored
        now = self._clock.now().replace(microsecond=0)
        certificate = stored.newest.certificate
        args = certificate, certificate_fingerprint(certificate), now
        store = self._store.authorities
        change = store.issue_by_next if stored.state == "distributing" else store.drop_retiring
        changed = await change(*args, force=force)
        await self.refresh()
        return changed


def _refs(peers: list[PeerTrust]) -> list[PeerRef]:
    return [PeerRef(kind=peer.kind, name=peer.name) for peer in peers]
