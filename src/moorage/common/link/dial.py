"""How an agent or a proxy dials its manager: with mTLS once it has joined, else with the link token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.link.identity import MANAGER_NAME, SKEW, Identity, IdentityFile, identity_file
from moorage.common.link.pb import peers_pb2, peers_pb2_grpc
from moorage.common.model.addresses import is_loopback, split_address
from moorage.common.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind

log = structlog.get_logger("moorage.link")

LinkTls = Literal["auto", "on", "off"]
RENEWAL_LOOK_S = 600.0
_RENEW_S = 10.0
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class Caller:
    """Dials ``target`` (host:port). ``identity``: where that of this process is kept; None: it has not
    joined, and speaks without TLS. It is read for each connection anew: it may have been renewed."""

    def __init__(
        self, target: str, *, token: str = "", identity: IdentityFile | None = None, clock: Clock
    ) -> None:
        self.target = target
        self._token, self._identity, self._clock = token, identity, clock

    @property
    def has_tls(self) -> bool:
        return self._identity is not None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._identity is not None else (("authorization", f"Bearer {self._token}"),)

    def channel(self, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Raises ``ConfigError`` for a certificate that is of no use now."""
        if self._identity is None:
            return grpc.aio.insecure_channel(self.target, options=options)
        identity = self._load(self._identity)
        wrong = identity.what_is_wrong(self._clock.now())
        if wrong:
            again = f"remove {self._identity.path}, and `moorage {identity.kind} join URL TOKEN`"
            raise ConfigError(wrong, next_step=again)
        credentials = grpc.ssl_channel_credentials(
            identity.authority.encode(), identity.key.encode(), identity.certificate.encode()
        )
        # Whatever the address, what answers must be a manager of the CA that we joined.
        named = ("grpc.ssl_target_name_override", MANAGER_NAME)
        return grpc.aio.secure_channel(self.target, credentials, options=[*options, named])

    async def hello(self, timeout_s: float) -> tuple[str, float]:
        """The manager's version, and by how many seconds its clock is ahead of ours. Raises ``StartupError``
        that says why it cannot be spoken to."""
        try:
            async with self.channel(()) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
                began = self._clock.now().timestamp()
                call = stub.Hello(peers_pb2.HelloRequest(), metadata=self.metadata, timeout=timeout_s)
                answer = await call
                ended = self._clock.now().timestamp()
        except grpc.aio.AioRpcError as error:
            away = error.code() is grpc.StatusCode.UNAVAILABLE
            words = f"nothing answers at {self.target}" if away else error.code().name
            raise StartupError(self.explain(error) or f"{words}: {error.details()}") from error
        return answer.version, answer.now_ms / 1000 - (began + ended) / 2

    async def renew(self) -> None:
        """Get a new certificate once a third of the old one's life has passed. What fails is tried again
        the next time: two thirds are left for that."""
        if self._identity is None:
            return
        identity = self._load(self._identity)
        if not identity.is_due(self._clock.now()):
            return
        from moorage.common.link.certificates import new_key  # ten megabytes, which most processes never need

        key, csr = new_key(identity.name)
        try:
            async with self.channel(()) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
                answer = await stub.Renew(peers_pb2.RenewRequest(csr=csr), timeout=_RENEW_S)
        except (grpc.aio.AioRpcError, ConfigError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning(
                "the certificate could not be renewed, trying again",
                expires=f"{identity.ends:%Y-%m-%dT%H:%M:%SZ}",
                why=why,
            )
            return
        renewed = _renewed(identity, answer, key, self._clock.now())
        self._identity.store(renewed)
        log.info("certificate renewed", until=f"{renewed.ends:%Y-%m-%dT%H:%M:%SZ}")

    def _load(self, file: IdentityFile) -> Identity:
        identity = file.load()
        if identity is None:
            raise ConfigError(f"the identity {file.path} is gone", next_step="join again")
        return identity

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Words for what only the way of dialling explains; None where that is not it."""
        details = error.details() or ""
        if error.code() in _REFUSED:
            if self._identity is None:
                return (
                    f"it refuses this process's link token: {details}; set common.link_token to the manager's"
                )
            return f"it does not take this certificate: {details}"
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return None
        if self._identity is None and "Socket closed" in details:
            return (
                f"what listens at {self.target} hangs up: if it speaks TLS, join it first "
                "(`moorage agent join URL TOKEN`, `moorage proxy join URL TOKEN`)"
            )
        if self._identity is not None and "WRONG_VERSION_NUMBER" in details:
            return f"what listens at {self.target} does not speak TLS (common.link_tls there?)"
        if self._identity is not None and "handshake failed" in details:
            return f"what listens at {self.target} is not a manager that we joined: {details}"
        if self._identity is not None and "Socket closed" in details:
            return (
                f"what listens at {self.target} hangs up: it may not take this certificate (see its log; "
                "does its clock agree with this node's?)"
            )
        return None


def _renewed(identity: Identity, answer: peers_pb2.RenewReply, key: str, now: datetime) -> Identity:
    from moorage.common.link.certificates import accept, pin_of
    from moorage.common.views.peers import JoinReply

    theirs = datetime.fromtimestamp(answer.now_ms / 1000, UTC)
    if abs(theirs - now) > SKEW:
        log.warning("this node's clock is not the manager's", apart_s=round((theirs - now).total_seconds()))
    reply = JoinReply(
        id=identity.id,
        kind=identity.kind,
        name=identity.name,
        resource_group=identity.resource_group,
        certificate=answer.certificate,
        authority=identity.authority,
        link=identity.link,
        now=theirs,
    )
    return accept(reply, key=key, pinned=pin_of(identity.authority), link=identity.link, now=now)


def caller_of(
    kind: PeerKind, name: str, target: str, *, link_tls: LinkTls, token: str, home: Path, clock: Clock
) -> Caller:
    """How this process dials. Raises ``ConfigError`` where that would send secrets in the clear unasked."""
    file = identity_file(home, kind, name)
    if link_tls == "off":
        return Caller(target, token=token, clock=clock)
    if file.load() is not None:
        return Caller(target, identity=file, clock=clock)
    if link_tls == "on" or not is_loopback(split_address(target)[0]):
        raise ConfigError(
            f"{kind} {name!r} has not joined (there is no {file.path}), and {kind}.manager = {target!r} is "
            "not to be spoken to without TLS",
            next_step=f"`moorage {kind} join URL TOKEN`; or, only on a network that you trust, set "
            "common.link_tls to off here and at the manager",
        )
    if not token:
        raise ConfigError(f"the {kind} has no link token", next_step="set common.link_token to the manager's")
    return Caller(target, token=token, clock=clock)
