"""gRPC dialer for agents and proxies: mTLS after joining, otherwise the link token."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import raise_if_cancelled
from moorage.common.link.identity import (
    MANAGER_NAME,
    SKEW,
    Identity,
    IdentityFile,
    certificate_fingerprint,
    identity_file,
    split_bundle,
)
from moorage.common.link.installation import InstallationFile, installation_file
from moorage.common.link.local import proven_target
from moorage.common.link.pb import peers_pb2, peers_pb2_grpc
from moorage.common.link.redial import Redial
from moorage.common.model.addresses import is_loopback, split_address, split_addresses
from moorage.common.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind

log = structlog.get_logger("moorage.link")

LinkTls = Literal["auto", "on", "off"]
MAINTENANCE_S = 600.0
# Exceptions from a call that has ended. InvalidStateError is raised if the call had ended before it
# was used again.
BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
REVOKED = ("moorage-revoked", "1")
"""Trailing metadata of a manager's refusal: the caller was revoked, not just unknown."""
_RENEW_TIMEOUT_S = 10.0
# Long enough even for a busy manager, because a peer that is not admitted has no link.
_ADMIT_TIMEOUT_S = 30.0
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def was_revoked(error: grpc.aio.AioRpcError) -> bool:
    """Whether a verified manager reports that this process was revoked."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED and REVOKED in tuple(
        error.trailing_metadata() or ()
    )


class Dialer:
    """Opens channels to one of the managers in ``targets`` (host:port, separated by commas), which
    ``redial`` chooses.

    ``identity`` is the identity file of this process; None means that it has not joined and
    connects without TLS. The file is read for each channel, because the identity may have been
    renewed. ``installation``: the only installation whose managers are dialed without TLS; None
    means any. ``home``: the state directory that managers on this host must have to be dialed
    without TLS; None means that any listener is dialed.
    """

    def __init__(
        self,
        targets: str,
        *,
        token: str = "",
        identity: IdentityFile | None = None,
        installation: InstallationFile | None = None,
        home: Path | None = None,
        clock: Clock,
    ) -> None:
        self._installation = installation
        self._home = home
        shuffled = sorted(split_addresses(targets), key=lambda _: clock.secret(8))
        self.redial = Redial(shuffled, clock.jitter)
        self._token = token
        self._identity = identity
        self._clock = clock

    @property
    def target(self) -> str:
        """The manager that is being dialed or is connected."""
        return self.redial.current

    @property
    def has_tls(self) -> bool:
        return self._identity is not None

    @property
    def asks_for_proof(self) -> bool:
        """Whether a manager without TLS must prove its identity before it receives the link
        token."""
        return self._identity is None and self._home is not None

    @property
    def token(self) -> str:
        """The link token, for connections without TLS."""
        return self._token

    def token_in_clear(self) -> str:
        """The link token, to be sent to a server that cannot prove that it is one of ours.

        Raises ``ConfigError`` unless ``common.link_tls`` is off."""
        if self.asks_for_proof:
            raise ConfigError(
                "connections that agents dial to proxies require TLS: without it they would send "
                "the link token to an unknown listener",
                next_step="set common.link_tls to on at the manager, and join the agent and the "
                "proxy; or, on a trusted network only, set it to off",
            )

        return self._token

    def identity(self) -> Identity | None:
        """Current identity, or None without TLS. Raises ``ConfigError`` if its certificate is not
        currently valid."""
        if self._identity is None:
            return None
        identity = self._load(self._identity)
        if problem := identity.find_problem(self._clock.now()):
            next_step = f"remove {self._identity.path}, and run `moorage {identity.kind} join URL`"
            raise ConfigError(problem, next_step=next_step)
        return identity

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._identity is not None else (("authorization", f"Bearer {self._token}"),)

    def channel(
        self, options: Sequence[tuple[str, Any]], target: str | None = None
    ) -> grpc.aio.Channel:
        """Open a channel to ``target``, by default the current manager.

        Raises ``ConfigError`` if the certificate is not currently valid, or if a manager on this
        host does not prove its identity."""
        target = target or self.target
        identity = self.identity()
        if identity is None:
            if self._home is not None:
                target = proven_target(self._home, target)
            return grpc.aio.insecure_channel(target, options=options)

        credentials = grpc.ssl_channel_credentials(
            identity.authority.encode(), identity.key.encode(), identity.certificate.encode()
        )
        # At every address, the server must be a manager with a certificate from the CA that we
        # joined.
        named = ("grpc.ssl_target_name_override", MANAGER_NAME)
        return grpc.aio.secure_channel(target, credentials, options=[*options, named])

    async def admit(self, channel: grpc.aio.Channel) -> None:
        """Verify that the manager at the other end belongs to our installation.

        Raises ``ConfigError`` if it does not, and ``grpc.aio.AioRpcError``."""
        if self._installation is None:
            return

        target = self.target
        stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
        reply = await stub.Hello(
            peers_pb2.HelloRequest(), metadata=self.metadata, timeout=_ADMIT_TIMEOUT_S
        )
        self._installation.admit(reply.installation, target)

    async def hello(self, timeout_s: float, target: str | None = None) -> tuple[str, float]:
        """Return the manager's version and how many seconds its clock is ahead of ours.

        Raises ``StartupError`` with the cause if the manager cannot be reached, and ``ConfigError``
        if it belongs to another installation.
        """
        target = target or self.target
        try:
            async with self.channel((), target) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
                sent_at = self._clock.now().timestamp()
                call = stub.Hello(
                    peers_pb2.HelloRequest(), metadata=self.metadata, timeout=timeout_s
                )
                reply = await call
                received_at = self._clock.now().timestamp()
        except grpc.aio.AioRpcError as error:
            is_unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
            cause = f"no answer from {target}" if is_unavailable else error.code().name
            raise StartupError(self.explain(error) or f"{cause}: {error.details()}") from error

        if self._installation is not None:
            self._installation.check(reply.installation, target)

        return reply.version, reply.now_ms / 1000 - (sent_at + received_at) / 2

    async def find_better(self, timeout_s: float) -> bool:
        """Ask the other managers whether they can reach their database, and choose the first one
        that can as the next to dial.

        Returns False if none can."""
        for target in self.redial.others:
            if await self.prefer(target, timeout_s):
                return True
        return False

    async def prefer(self, target: str, timeout_s: float) -> bool:
        """Dial this manager next if it answers and can reach its database. Returns whether it
        does."""
        try:
            async with self.channel((), target) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
                reply = await stub.Hello(
                    peers_pb2.HelloRequest(), metadata=self.metadata, timeout=timeout_s
                )

            if self._installation is not None:
                self._installation.check(reply.installation, target)
        except (grpc.aio.AioRpcError, ConfigError):
            raise_if_cancelled()
            return False

        if not reply.no_database:
            self.redial.prefer(target)

        return not reply.no_database

    def learn(self, managers: Sequence[str]) -> None:
        """Learn the addresses of all managers.

        Loopback addresses are ignored unless this process also uses one. New addresses are stored
        with the identity."""
        here = is_loopback(split_address(self.target)[0])
        known = [a for a in managers if here or not is_loopback(split_address(a)[0])]
        if self.redial.learn(known) and self._identity is not None:
            identity = self._load(self._identity)
            addresses = dict.fromkeys((*split_addresses(identity.link), *known))
            self._identity.store(replace(identity, link=",".join(addresses)))

    async def maintain(self) -> None:
        """Learn the addresses of added managers, and renew the certificate when it is due. A peer
        that has joined stores the addresses with its identity."""
        try:
            reply = await self._say_hello()
            if self._adopt(reply.authorities):
                reply = await self._say_hello()  # confirms it
        except (grpc.aio.AioRpcError, ConfigError):
            raise_if_cancelled()
            return  # it is unavailable or refuses; the link's own connection logs the reason

        if reply.managers:
            self.learn(reply.managers)

        if await self.renew(now=reply.renew) and reply.renew:
            with contextlib.suppress(grpc.aio.AioRpcError, ConfigError):
                await self._say_hello()  # shows the manager that the certificate has arrived
            raise_if_cancelled()

    async def _say_hello(self) -> peers_pb2.HelloReply:
        trusted = (
            split_bundle(self._load(self._identity).authority) if self._identity is not None else ()
        )
        request = peers_pb2.HelloRequest(
            authorities=[certificate_fingerprint(pem) for pem in trusted]
        )
        async with self.channel(()) as channel:
            stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
            reply: peers_pb2.HelloReply = await stub.Hello(
                request, metadata=self.metadata, timeout=_RENEW_TIMEOUT_S
            )

        if self._installation is not None:
            self._installation.check(reply.installation, self.target)

        return reply

    def _adopt(self, authorities: Sequence[str]) -> bool:
        """Trust these CAs from now on, as requested by a manager. Returns whether they differ from
        the previous ones."""
        if self._identity is None:
            return False

        identity = self._load(self._identity)
        before = set(split_bundle(identity.authority))
        after = split_bundle("".join(authorities))

        # The manager's own CA is in both lists. A manager of the previous release sends an empty
        # list.
        if before == set(after) or before.isdisjoint(after):
            return False

        self._identity.store(replace(identity, authority="".join(after)))
        log.info("trusted CAs changed", authorities=[certificate_fingerprint(pem) for pem in after])
        return True

    async def renew(self, *, now: bool = False) -> bool:
        """Renew the certificate once a third of its validity period has passed, or ``now``. Returns
        whether it was renewed.

        A failure is logged and retried at the next call; the remaining two thirds of the validity
        period leave time for that.
        """
        if self._identity is None:
            return False

        identity = self._load(self._identity)
        if not now and not identity.is_due(self._clock.now()):
            return False

        from moorage.common.link.certificates import new_key  # imports cryptography, 10 MB

        key, csr = new_key(identity.name)
        try:
            async with self.channel(()) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)  # type: ignore[no-untyped-call]
                reply = await stub.Renew(peers_pb2.RenewRequest(csr=csr), timeout=_RENEW_TIMEOUT_S)
        except (grpc.aio.AioRpcError, ConfigError) as error:
            raise_if_cancelled()
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning(
                "certificate renewal failed, will retry",
                expires=f"{identity.ends:%Y-%m-%dT%H:%M:%SZ}",
                why=why,
            )
            return False

        renewed = _renewed(identity, reply, key, self._clock.now())
        self._identity.store(renewed)
        log.info("certificate renewed", until=f"{renewed.ends:%Y-%m-%dT%H:%M:%SZ}")
        return True

    def _load(self, file: IdentityFile) -> Identity:
        identity = file.load()
        if identity is None:
            raise ConfigError(
                f"the identity file {file.path} does not exist", next_step="join again"
            )
        return identity

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Explain an error that is caused by how this process connects. Returns None for any other
        error."""
        details = error.details() or ""
        if error.code() in _REFUSED:
            if self._identity is None:
                return (
                    f"the manager rejects this link token: {details}; set common.link_token to "
                    "the manager's"
                )

            return f"the manager rejects this certificate: {details}"

        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return None

        if self._identity is None and "Socket closed" in details:
            return (
                f"{self.target} closed the connection: if it speaks TLS, join it first (`moorage "
                "agent join URL`, `moorage proxy join URL`)"
            )

        if self._identity is not None and "WRONG_VERSION_NUMBER" in details:
            return f"{self.target} does not speak TLS; check common.link_tls there"
        if self._identity is not None and "handshake failed" in details:
            return f"{self.target} is not a manager that this peer joined: {details}"

        if self._identity is not None and "Socket closed" in details:
            return (
                f"{self.target} closed the connection: it may reject this certificate; see its "
                "log, and "
                "compare its clock with this node's"
            )

        return None


def _renewed(
    identity: Identity, renewal: peers_pb2.RenewReply, key: str, now: datetime
) -> Identity:
    from moorage.common.link.certificates import accept, issuer_first, pem_fingerprint
    from moorage.common.views.peers import JoinReply

    manager_now = datetime.fromtimestamp(renewal.now_ms / 1000, UTC)
    skew = manager_now - now
    if abs(skew) > SKEW:
        log.warning(
            "clock skew between this node and the manager", skew_s=round(skew.total_seconds())
        )

    # The CA may have been rotated since the manager sent the list of trusted CAs.
    issuer, *others = issuer_first(split_bundle(identity.authority), renewal.certificate)
    reply = JoinReply(
        id=identity.id,
        kind=identity.kind,
        name=identity.name,
        resource_group=identity.resource_group,
        certificate=renewal.certificate,
        authority=issuer,
        other_authorities=others,
        link=identity.link,
        now=manager_now,
    )
    return accept(reply, key=key, pinned=pem_fingerprint(issuer), link=identity.link, now=now)


def dialer_for(
    kind: PeerKind,
    name: str,
    targets: str,
    *,
    link_tls: LinkTls,
    token: str,
    home: Path,
    manager_home: Path | None = None,
    clock: Clock,
) -> Dialer:
    """Return this process's dialer. ``targets``: addresses of managers, separated by commas. Raises
    ``ConfigError`` if it would send secrets in clear text. On this host, secrets go over the socket
    of a manager with the state directory ``manager_home``; None means ``home``."""
    file = identity_file(home, kind, name)
    installation = installation_file(home, kind, name)
    if link_tls == "off":
        return Dialer(targets, token=token, installation=installation, clock=clock)
    if file.load() is not None:
        return Dialer(targets, identity=file, clock=clock)

    if link_tls == "on" or not all(
        is_loopback(split_address(a)[0]) for a in split_addresses(targets)
    ):
        raise ConfigError(
            f"{kind} {name!r} has not joined (no {file.path}), and {kind}.manager = {targets!r} "
            "requires TLS",
            next_step=f"run `moorage {kind} join URL`; or, on a trusted network only, set "
            "common.link_tls to off here and at the manager",
        )

    if not token:
        raise ConfigError(
            f"the {kind} has no link token", next_step="set common.link_token to the manager's"
        )

    trusted = home if manager_home is None else manager_home.expanduser()
    return Dialer(targets, token=token, installation=installation, home=trusted, clock=clock)
