"""Who is at the other end of a link: the holder of a peer's certificate, or of the link token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.views.peers import PeerKind
from moorage.manager.store import Store, Topic
from moorage.manager.store.peers import Peer

log = structlog.get_logger("moorage.rpc")

_LOOK_AGAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Caller:
    """``peer`` is None for one that has only the link token: it may be any agent or proxy."""

    peer_id: str = ""
    peer: Peer | None = None

    def may_be(self, name: str, resource_group: str | None = None) -> str:
        """Why it may not speak as that; "" if it may."""
        if self.peer is None:
            return ""
        if name != self.peer.name:
            return (
                f"this certificate is for {self.peer.kind} {self.peer.name!r}, not for {name!r}: "
                f"set {self.peer.kind}.id back, or join as {name!r}"
            )
        bound = self.peer.resource_group
        if resource_group is not None and bound is not None and resource_group != bound:
            return (
                f"it joined for the resource group {bound!r}, not for {resource_group!r}: set "
                "agent.resource_group back, or join with another token"
            )
        return ""


class LinkAuthenticator:
    """Lets callers in, and ends the calls of those that were revoked. ``token``: the link token, where the
    link has no TLS; None where it has, and the certificate says who calls."""

    def __init__(self, store: Store, token: str | None, clock: Clock) -> None:
        self._store, self._token, self._clock = store, token, clock
        self._calls: dict[str, set[asyncio.Timeout]] = {}
        self.loop = Loop("peers", self._tick, interval_s=_LOOK_AGAIN_S, clock=clock)
        store.notifier.on(Topic.PEERS, self.loop.nudge)

    def now(self) -> datetime:
        return self._clock.now()

    async def admit(self, context: Any, *kinds: PeerKind) -> Caller:
        """Aborts the call of whoever may not make it. Raises ``StoreUnavailable``."""
        if self._token is not None:
            given = dict(context.invocation_metadata() or ()).get("authorization", "")
            if not hmac.compare_digest(str(given).encode(), f"Bearer {self._token}".encode()):
                await context.abort(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "wrong link token: give this process the manager's (common.link_token or state "
                    "directory)",
                )
            return Caller()
        kind, name, peer_id = _named(context)
        peer = await self._store.peers.find(peer_id) if peer_id else None
        if peer is None or (peer.kind, peer.name) != (kind, name):
            words = f"{kind} {name!r} was revoked, or joined another installation: join again"
            log.warning("a certificate is refused", peer=context.peer(), kind=kind, name=name)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, words)
            raise AssertionError("aborted")
        if peer.kind not in kinds:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"this certificate is for {kind} {name!r}, and this is for {'s and '.join(kinds)}s only",
            )
        return Caller(peer_id, peer)

    @asynccontextmanager
    async def watching(self, caller: Caller, context: Any) -> AsyncIterator[None]:
        """Within: the call is ended once the peer is revoked."""
        if caller.peer is None:
            yield
            return
        calls = self._calls.setdefault(caller.peer_id, set())
        try:
            async with asyncio.timeout(None) as call:
                calls.add(call)
                yield
        except TimeoutError:
            if not call.expired():
                raise
            words = f"{caller.peer.kind} {caller.peer.name!r} was revoked"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, words)
        finally:
            calls.discard(call)
            if not calls:
                self._calls.pop(caller.peer_id, None)

    async def _tick(self) -> None:
        if not self._calls:
            return
        left = await self._store.peers.valid(list(self._calls))
        for peer_id in self._calls.keys() - left:
            log.warning("a peer was revoked: its links are ended", peer=peer_id)
            for call in self._calls[peer_id]:
                call.reschedule(0.0)  # its time is over


def _named(context: Any) -> tuple[str, str, str]:
    """Kind, name and peer id, as the caller's certificate has them; empty if it is none of ours."""
    for uri in (context.auth_context() or {}).get("peer_uri", ()):
        scheme, _, rest = bytes(uri).decode(errors="replace").partition(":")
        parts = rest.split(":")
        if scheme == "moorage" and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return "", "", ""
