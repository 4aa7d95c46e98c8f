"""SSH logins claimed by a proxy: the manager accepts only those that the key's holder has
signed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from moorage.common.link.pb import agent_pb2, ssh_pb2
from moorage.common.model.public_keys import fingerprint_of, parse_public_key
from moorage.common.model.spec import SessionSpec
from moorage.common.views.identity import ProjectSpec, UserSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.rpc.commands import CommandBroker
from moorage.manager.rpc.ssh import SshBroker
from moorage.manager.store import Store
from tests.ssh_signing import SshSigner

from .tenancy_harness import ROOT

ANN = SshSigner(1)
EVE = SshSigner(2)
DEV = "vision/dev"
FILES = "ann"
UNPROVED = "the proxy has not shown that the client holds the key"


def login(name: str, by: SshSigner = ANN, of: str | None = None) -> ssh_pb2.SshLogin:
    """A login for a name with ann's key, signed by the holder of a key."""
    signed = by.signed_login(name if of is None else of)
    proof = ssh_pb2.SshProof(key=by.blob, signed=signed, signature=by.sign(signed))
    return claimed(name, proof)


def claimed(name: str, proof: ssh_pb2.SshProof | None = None) -> ssh_pb2.SshLogin:
    return ssh_pb2.SshLogin(
        proxy_id="edge",
        login=name,
        fingerprint=fingerprint_of(ANN.blob),
        address="192.0.2.1",
        proof=proof,
    )


def forged(name: str) -> dict[str, ssh_pb2.SshLogin]:
    """Logins that a proxy can construct without having seen ann log in under this name."""
    stolen = login(name)
    stolen.proof.signature = EVE.sign(stolen.proof.signed)
    return {
        "nothing": claimed(name),
        "empty": claimed(name, ssh_pb2.SshProof()),
        "by another key": login(name, EVE),
        "for another session": login(name, of="vision/other"),
        "the signature of another key": stolen,
    }


class Context:
    """The context of an `Open` call."""

    def __init__(self) -> None:
        self.written: list[agent_pb2.ExecOutput] = []

    async def write(self, output: agent_pb2.ExecOutput) -> None:
        self.written.append(output)


async def no_inputs() -> AsyncIterator[ssh_pb2.SshInput]:
    return
    yield


async def opened(broker: SshBroker, of: ssh_pb2.SshLogin, session: str = "") -> str:
    """Why a channel was refused."""
    context = Context()
    start = ssh_pb2.SshStart(login=of, spec='{"command": ["id"]}', session=session)
    await broker.serve(start, no_inputs(), cast(Any, context))
    return context.written[-1].end.detail


class Started(Exception):
    """A command was about to start."""


class Execs:
    """Where commands would run."""

    def open(self, *_: object, **__: object) -> Any:
        raise Started

    open_files = open


async def prepared(store: Store) -> SshBroker:
    await store.projects.create(ROOT, ProjectSpec(name="vision"))
    await store.users.create(ROOT, UserSpec(name="ann"))
    await store.projects.set_member(ROOT, "vision", "ann", "member")
    key = parse_public_key(f"{ANN.public_key} laptop")
    scope = Scope.system("user:ann", Owner("ann", "vision", isolated=True))
    await store.ssh_keys.create(scope, key)

    for name in ("dev", "other"):
        await store.sessions.create(
            scope, SessionSpec.model_validate({"name": name, "command": ["x"]})
        )

    return SshBroker(store, cast(CommandBroker, Execs()))


async def test_a_proxy_cannot_open_a_channel_for_a_key_by_itself(store: Store) -> None:
    broker = await prepared(store)
    for what, made in forged(DEV).items():
        assert await opened(broker, made) == UNPROVED, what
        assert (await broker.log_in(made)).refusal == ("" if what == "nothing" else UNPROVED), what
    with pytest.raises(Started):
        await opened(broker, login(DEV))
    target = await broker.log_in(login(DEV))
    assert (target.refusal, bool(target.session_id)) == ("", True)


async def test_a_proxy_cannot_reach_files_by_itself(store: Store) -> None:
    broker = await prepared(store)
    for project in ("", "vision"):
        for what, made in forged(FILES).items():
            entries = await broker.list_files(ssh_pb2.SshFolder(login=made, project=project))
            assert (entries.refusal, list(entries.names)) == (UNPROVED, []), what
    for what, made in forged(FILES).items():
        assert await opened(broker, made, "vision/dev") == UNPROVED, what
    entries = await broker.list_files(ssh_pb2.SshFolder(login=login(FILES)))
    assert list(entries.names) == ["vision"]


async def test_a_login_to_one_session_is_not_one_to_others(store: Store) -> None:
    broker = await prepared(store)
    one = login(DEV)
    entries = await broker.list_files(ssh_pb2.SshFolder(login=one, project="vision"))
    assert (entries.refusal, list(entries.names)) == ("the login is for one session", [])
    assert await opened(broker, one, "vision/other") == "the login is for one session"
