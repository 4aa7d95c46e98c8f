"""Joining: with a join token to an identity of one's own, which is kept in the state directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from yarl import URL

from moorage.common.aio.clock import Clock
from moorage.common.link.certificates import JoinToken, accept, new_key
from moorage.common.link.identity import Identity, identity_file
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError
from moorage.common.views.peers import PeerKind
from moorage.sdk import Client


async def join(
    url: str, secret: str, *, kind: PeerKind, name: str, home: Path, clock: Clock, link: str | None = None
) -> Identity:
    """Join as ``name`` by the token ``secret``, at the manager's REST API at ``url``; keep the identity below
    ``home``. ``link``: dial there, whatever the manager says.

    Raises ``InvalidInput`` for what is no token, ``ConfigError`` if that name has joined from here already or
    something other than the token's manager answers, ``ApiError`` when it refuses, ``Unreachable``.
    """
    token = JoinToken.parse(secret)
    file = identity_file(home, kind, name)
    known = file.load()
    if known is not None and not known.what_is_wrong(clock.now()):
        raise ConfigError(
            f"{kind} {name!r} has joined already: its identity is in {file.path}",
            next_step=f"start it: `moorage {kind}`; to join anew, remove that file first",
        )
    pending = file.path.with_suffix(".pending")
    key, csr = _key_of(pending, name)
    async with Client(url) as client:
        reply = await client.join(token.request(kind, name, csr))
    identity = accept(
        reply,
        key=key,
        pinned=token.fingerprint,
        link=link or _link_at(url, reply.link),
        now=clock.now(),
    )
    file.store(identity)
    pending.unlink(missing_ok=True)
    return identity


def _key_of(pending: Path, name: str) -> tuple[str, str]:
    """The key of a try whose answer was lost, else a new one: with the same key it is the same peer."""
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


def _link_at(url: str, link: str) -> str:
    """``:8701`` is a port of the host that was asked."""
    host, port = split_address(link)
    if not link.startswith(":"):
        return f"{host}:{port}"
    return f"{URL(url).host}:{port}"
