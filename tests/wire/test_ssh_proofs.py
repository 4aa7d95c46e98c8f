"""Proofs of SSH logins: what a client signs to log in to a proxy, and how the proxy passes it on to
managers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncssh
import pytest
from prometheus_client import CollectorRegistry

from moorage.common.aio.clock import SystemClock
from moorage.common.config.ssh_settings import SshSettings
from moorage.common.link.pb import ssh_pb2
from moorage.common.model.commands import ExecEnd, ExecSpec
from moorage.common.model.public_keys import fingerprint_of
from moorage.manager.crypto.ssh_signatures import proves_login
from moorage.proxy.control.ssh_access import Login, SshAccess
from moorage.proxy.ssh.metrics import SshMetrics
from moorage.proxy.ssh.server import SshFrontend

LOGIN = "vision/dev"


class Command:
    """A command that ended at once."""

    end = ExecEnd(exit_code=0)

    async def read(self) -> None:
        return None

    async def end_input(self) -> None: ...


class Access:
    """The manager, which lets every key log in and keeps the requests that it received."""

    def __init__(self) -> None:
        self.asked: list[Login] = []
        self.opened: asyncio.Queue[Login] = asyncio.Queue()
        self.host = asyncssh.generate_private_key("ssh-ed25519")

    async def host_key(self) -> str:
        return self.host.export_private_key().decode()

    async def log_in(self, login: Login) -> ssh_pb2.SshTarget:
        self.asked.append(login)
        return ssh_pb2.SshTarget(session_id="s")

    @asynccontextmanager
    async def open(self, login: Login, spec: ExecSpec) -> AsyncIterator[Command]:
        self.opened.put_nowait(login)
        yield Command()

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "kind",
    ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"],
)
async def test_a_channel_has_the_clients_own_signature_of_its_login(kind: str) -> None:
    key = asyncssh.generate_private_key(kind)
    other = asyncssh.generate_private_key("ssh-ed25519")
    access = Access()
    settings = SshSettings(ssh_listen="127.0.0.1:0")
    frontend = SshFrontend(
        settings, cast(SshAccess, access), SshMetrics(CollectorRegistry()), clock=SystemClock()
    )
    async with frontend:
        host, port = frontend.address
        options: dict[str, Any] = {"username": LOGIN, "client_keys": [key], "known_hosts": None}
        async with asyncssh.connect(host, port, **options) as connection:
            assert (await connection.run("true")).exit_status == 0
            login = access.opened.get_nowait()
        async with asyncio.timeout(10):
            while access.asked[-1].proof is None:
                await asyncio.sleep(0.01)

        proof = login.proof
        assert proof is not None
        assert fingerprint_of(proof.key) == login.fingerprint
        assert proves_login(LOGIN, proof.key, proof.signed, proof.signature)
        assert not proves_login("vision/other", proof.key, proof.signed, proof.signature)
        assert not proves_login(LOGIN, other.public_data, proof.signed, proof.signature)
        assert access.asked[0].proof is None, "asked before the client has signed"
        assert access.asked[-1] == login, "a login that has succeeded is told with its proof"
