"""Registration of an agent or a proxy: exchanges a join token for an identity and stores it on
disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

from yarl import URL

from moorage.common.aio.clock import Clock
from moorage.common.link.certificates import JoinToken, accept, new_key
from moorage.common.link.identity import Identity, identity_file
from moorage.common.link.installation import installation_file
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError
from moorage.common.views.peers import PeerKind
from moorage.sdk import Client


async def join(
    url: str,
    secret: str,
    *,
    kind: PeerKind,
    name: str,
    home: Path,
    clock: Clock,
    link: str | None = None,
) -> Identity:
    """Register as ``name`` with the join token ``secret``, and store the identity below ``home``.

    ``url`` is the manager's REST API. ``link`` overrides the gRPC addresses that the manager
    announces.

    Raises ``InvalidInput`` for a malformed token, ``ConfigError`` if this name has already been
    registered from here, or if the host at ``url`` is not the manager that issued the token,
    ``ApiError`` if the manager refuses, and ``Unreachable``.
    """
    token = JoinToken.parse(secret)
    file = identity_file(home, kind, name)
    known = file.load()
    if known is not None and not known.find_problem(clock.now()):
        raise ConfigError(
            f"{kind} {name!r} has joined already: its identity is in {file.path}",
            next_step=f"start it with `moorage {kind}`; to join again, remove that file first",
        )

    pending = file.path.with_suffix(".pending")
    key, csr = _pending_key(pending, name)

    # The fingerprint in the token verifies the reply, regardless of the server's certificate.
    async with Client(url, verify=False) as client:
        reply = await client.peers.join(token.request(kind, name, csr))

    identity = accept(
        reply,
        key=key,
        pinned=token.fingerprint,
        link=link or ",".join((_link_address(url, reply.link), *reply.other_links)),
        now=clock.now(),
    )
    file.store(identity)
    installation_file(home, kind, name).forget()
    pending.unlink(missing_ok=True)

    return identity


def _pending_key(pending: Path, name: str) -> tuple[str, str]:
    """The key and CSR from an earlier attempt, or new ones, which are stored in ``pending``.

    If the reply to an attempt was lost, the retry presents the same key, and the manager recognizes
    the peer.
    """
    try:
        known = json.loads(pending.read_text())
        return known["key"], known["csr"]
    except (OSError, ValueError, KeyError, TypeError):
        pass

    key, csr = new_key(name)
    pending.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"key": key, "csr": csr}, file)

    return key, csr


def _link_address(url: str, link: str) -> str:
    """The gRPC address to dial. A ``link`` without a host, such as ``:8701``, gets the host from
    ``url``."""
    host, port = split_address(link)
    if not link.startswith(":"):
        return f"{host}:{port}"
    return f"{URL(url).host}:{port}"
