"""Authentication of agents and proxies by their certificates, or by the link token on links without
TLS."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.certificates import key_digest
from moorage.common.link.dial import REVOKED
from moorage.common.link.identity import MANAGER_NAME
from moorage.common.views.peers import PeerKind
from moorage.manager.pki.authorities import Authorities, Trust
from moorage.manager.store import Store, Topic
from moorage.manager.store.platform.peers import Peer, PeerKeys

log = structlog.get_logger("moorage.rpc")

_POLL_S = 30.0
# A link opened with a certificate that has since been replaced is closed after this many seconds,
# so that its peer reconnects with the new one.
_RENEWED_LINK = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LinkCaller:
    """The authenticated caller of a link. ``peer`` is None for a caller with only the link token,
    which may act as any agent or proxy. ``key``: digest of the public key in its certificate.
    ``issuer``: fingerprint of the CA that issued the certificate."""

    peer_id: str = ""
    peer: Peer | None = None
    key: str = ""
    issuer: str = ""

    def refusal_to_act_as(self, name: str, resource_group: str | None = None) -> str:
        """The reason why the caller may not act as ``name``, or "" if it may."""
        if self.peer is None:
            return ""

        if name != self.peer.name:
            return (
                f"this certificate is for {self.peer.kind} {self.peer.name!r}, not for {name!r}: "
                f"restore {self.peer.kind}.id, or join as {name!r}"
            )

        bound = self.peer.resource_group
        allowed = {bound, resource_group if bound is None else bound, *self.peer.group_aliases}
        if resource_group is not None and resource_group not in allowed:
            return (
                f"this agent joined for the resource group {bound!r}, not for {resource_group!r}: "
                "restore "
                "agent.resource_group, or join with another token"
            )

        return ""


class LinkAuthenticator:
    """Authenticates callers, and ends the calls of revoked peers. ``by``: the link token for links
    without TLS, or the CAs for links with TLS, where the certificate identifies the caller."""

    def __init__(self, store: Store, by: str | Authorities, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._token = by if isinstance(by, str) else None
        self._authorities = None if isinstance(by, str) else by
        self._calls: dict[str, set[_Call]] = {}
        self.loop = Loop("peers", self._tick, interval_s=_POLL_S, clock=clock)
        store.notifier.on(Topic.PEERS, self.loop.nudge)

    def now(self) -> datetime:
        return self._clock.now()

    async def authenticate(self, context: Any, *kinds: PeerKind) -> LinkCaller:
        """Return the caller if it is of one of the ``kinds``; otherwise abort the call. Raises
        ``StoreUnavailable``."""
        if self._token is not None:
            await _check_token(context, self._token)
            return LinkCaller()

        kind, name, peer_id = _certificate_identity(context)
        peer = await self._store.peers.find(peer_id) if peer_id else None
        key, issuer = _key_and_issuer(context)
        if peer is None or (peer.kind, peer.name) != (kind, name) or key in peer.retired_keys:
            message = f"{kind} {name!r} was revoked, or belongs to another installation: join again"
            if peer is not None and key in peer.retired_keys:
                message = (
                    f"this certificate of {kind} {name!r} was replaced by a newer one, which is "
                    "in use"
                )

            log.warning("certificate refused", peer=context.peer(), kind=kind, name=name)
            is_revoked = (
                peer is None and bool(peer_id) and await self._store.peers.is_revoked(peer_id)
            )
            note = (REVOKED,) if is_revoked else ()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, message, note)
            raise AssertionError("aborted")

        if peer.kind not in kinds:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"this certificate is for {kind} {name!r}, and only {'s and '.join(kinds)}s may "
                "call this method",
            )

        assert self._authorities is not None
        trusted = self._authorities.trust.fingerprints.get(issuer) if issuer is not None else None
        if trusted is None:
            # The connection was opened before the rotation ended.
            message = (
                f"this certificate of {kind} {name!r} was issued by a CA that has been replaced: "
                "join again"
            )
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
            raise AssertionError("aborted")

        return LinkCaller(peer_id, peer, key, trusted)

    async def confirm(self, caller: LinkCaller, authorities: Collection[str]) -> Trust | None:
        """The CAs to trust, for a peer that reports which CAs it trusts (fingerprints), or None
        without TLS."""
        if self._authorities is None or caller.peer is None:
            return None

        trust = self._authorities.trust
        known = set(trust.fingerprints.values())
        if not known.issuperset(authorities):
            # Another manager may have announced the next CA to the peer. This manager must not
            # withdraw it.
            trust = await self._authorities.refresh()
            known = set(trust.fingerprints.values())

        trusts = frozenset(known.intersection(authorities))
        is_new = (trusts, caller.issuer) != (caller.peer.trusts, caller.peer.issuer)
        if is_new and caller.key == caller.peer.key:
            await self._store.peers.confirm(caller.peer_id, caller.key, trusts, caller.issuer)

        return trust

    async def retire_replaced_key(self, caller: LinkCaller) -> None:
        """Retire the previous key. Call this when a peer's link starts: once the peer uses its
        newest key, it no longer needs the previous one."""
        if caller.peer is not None and caller.peer.was_renewed and caller.key == caller.peer.key:
            await self._store.peers.retire(caller.peer_id, caller.key)

    async def authenticate_manager(self, context: Any) -> None:
        """Abort the call unless the caller is another manager. The CA issues certificates with the
        managers' name only to managers."""
        if self._token is not None:
            await _check_token(context, self._token)
            return
        names = (context.auth_context() or {}).get("x509_subject_alternative_name", ())
        if MANAGER_NAME.encode() not in names:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, "only managers may call this method"
            )

    @asynccontextmanager
    async def until_revoked(self, caller: LinkCaller, context: Any) -> AsyncIterator[None]:
        """End the call inside the context when the peer is revoked or its key retired, and some
        time after its certificate was renewed, because the next connection then uses the new
        certificate."""
        if caller.peer is None:
            yield
            return

        calls = self._calls.setdefault(caller.peer_id, set())
        try:
            async with asyncio.timeout(None) as timeout:
                call = _Call(timeout, caller.key, caller.issuer, self._clock.now())
                calls.add(call)
                yield
        except TimeoutError:
            if not timeout.expired():
                raise

            peer = f"{caller.peer.kind} {caller.peer.name!r}"
            if call.renewed:
                await context.abort(
                    grpc.StatusCode.UNAVAILABLE,
                    f"the certificate of {peer} was renewed: reconnect",
                )

            note = (REVOKED,) if call.revoked else ()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{peer} was revoked", note)
        finally:
            calls.discard(call)
            if not calls:
                self._calls.pop(caller.peer_id, None)

    async def _tick(self) -> None:
        if not self._calls:
            return

        # Calls that start before the answers arrive are checked at the next tick.
        asked = {peer_id: list(calls) for peer_id, calls in self._calls.items()}
        left = await self._store.peers.valid(list(asked))
        now = self._clock.now()

        # A call whose certificate comes from a dropped CA ends, and the peer reconnects with its
        # new certificate.
        trust = await self._authorities.refresh() if self._authorities is not None else None
        trusted = frozenset(trust.fingerprints.values() if trust is not None else ())
        for peer_id, calls in asked.items():
            keys = left.get(peer_id)
            is_revoked = False
            if keys is None:
                log.warning("peer revoked: closing its links", peer=peer_id)
                is_revoked = await self._store.peers.is_revoked(peer_id)

            for call in calls:
                if call not in self._calls.get(peer_id, ()):
                    continue  # it has ended

                call.renewed = keys is not None
                call.revoked = is_revoked
                if keys is None or call.is_outdated(keys, now) or call.issuer not in trusted:
                    call.timeout.reschedule(0.0)  # expires immediately


@dataclass(slots=True, eq=False)
class _Call:
    timeout: asyncio.Timeout
    key: str
    issuer: str
    since: datetime
    renewed: bool = False
    revoked: bool = False  # False if the peer is unknown to the database

    def is_outdated(self, keys: PeerKeys, now: datetime) -> bool:
        """Whether the call started before its peer's renewal.

        A later call with the same key means that the peer has no other key, because the response
        with the new certificate was lost."""
        if self.key in keys.retired:
            return True
        replaced_at = keys.renewed_at if self.key == keys.replaced else None
        return replaced_at is not None and self.since < replaced_at < now - _RENEWED_LINK


async def _check_token(context: Any, token: str) -> None:
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    if not hmac.compare_digest(str(given).encode(), f"Bearer {token}".encode()):
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            "wrong link token: use the manager's token (common.link_token, or link-token in its "
            "state directory)",
        )


def _certificate_identity(context: Any) -> tuple[str, str, str]:
    """The kind, name and peer id from the caller's certificate, or empty strings for a foreign
    certificate."""
    for uri in (context.auth_context() or {}).get("peer_uri", ()):
        scheme, _, rest = bytes(uri).decode(errors="replace").partition(":")
        parts = rest.split(":")
        if scheme == "moorage" and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return "", "", ""


def _key_and_issuer(context: Any) -> tuple[str, x509.Name | None]:
    """The digest of the public key in the caller's certificate, and the name of the CA that issued
    it, or "" and None without a certificate."""
    for pem in (context.auth_context() or {}).get("x509_pem_cert", ()):
        return _read(bytes(pem))
    return "", None


@lru_cache(maxsize=4096)
def _read(pem: bytes) -> tuple[str, x509.Name]:
    certificate = x509.load_pem_x509_certificate(pem)
    key = certificate.public_key()
    return key_digest(key) if isinstance(key, ec.EllipticCurvePublicKey) else "", certificate.issuer
