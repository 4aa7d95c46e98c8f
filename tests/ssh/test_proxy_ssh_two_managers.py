"""SSH through a proxy with two managers: keys that change on either one, and the loss of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.common.model.status import Status
from tests.e2e.harness import Platform, until
from tests.ssh.proxy_clients import SMALL, SshPlatform

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(240)]
AT = "default/dev@127.0.0.1"


class Site:
    """A node and a proxy that are linked to manager ``a`` while it is alive; ``b`` starts after
    it."""

    def __init__(self, home: Path, dsn: str) -> None:
        for name in ("a", "b", "node", "edge"):
            (home / name).mkdir(mode=0o711)

        self.a, self.b, self.node = (Platform(home / name) for name in ("a", "b", "node"))
        self.edge = SshPlatform(home / "edge")
        links = ",".join(one.env["MOORAGE_MANAGER__LINK_LISTEN"] for one in (self.a, self.b))
        for platform in (self.a, self.b, self.node, self.edge):
            platform.env |= {
                "MOORAGE_COMMON__LINK_TOKEN": "shared",
                # Each has its own home, so none finds the socket of a manager.
                "MOORAGE_COMMON__LINK_TLS": "off",
                "MOORAGE_MANAGER__DSN": dsn,
                "MOORAGE_AGENT__MANAGER": links,
                "MOORAGE_PROXY__MANAGER": links,
                "MOORAGE_AGENT__ID": platform.home.name,
            }

    async def up(self) -> None:
        self.a.start("manager")
        await self.a.wait_until_ready()
        self.node.start("agent")
        self.edge.start("proxy")
        await until("a session runs", self._session_runs)

        # With the first host key, ``a`` creates the key for secrets, which managers share.
        await until("the proxy accepts SSH", self.edge.greets)
        for name in ("admin-key", "secrets-keys"):
            (self.b.home / name).write_text((self.a.home / name).read_text())

        self.b.start("manager")
        await self.b.wait_until_ready()

    async def _session_runs(self) -> bool:
        async with self.a.client() as client:
            found = await client.sessions.list(name="dev")
            if not found:
                await asyncio.to_thread(self.a.run, "start", "--name", "dev", *SMALL)
            return any(one.status is Status.RUNNING for one in found)

    def new_key(self, manager: Platform, name: str) -> Path:
        """A key that is registered on this manager."""
        file = self.edge.new_key(name, registered=False)
        added = manager.run("keys", "add-ssh", f"{file}.pub")
        assert added.returncode == 0, added.stderr
        return file

    async def logs_in(self, key: Path) -> bool:
        outcome = await self.edge.ssh(key, AT, "echo in")
        return (outcome.returncode, outcome.stdout) == (0, b"in\n")

    async def end_of_channel_after_removal(self, manager: Platform, key: Path) -> bytes:
        """The message on an open channel when its key is removed on this manager."""
        channel = await asyncio.create_subprocess_exec(
            *self.edge.openssh("ssh", key, AT, "echo ready; exec sleep 600"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert channel.stdout is not None
            assert await channel.stdout.readline() == b"ready\n"
            removed = await asyncio.to_thread(manager.run, "keys", "remove-ssh", key.stem)
            assert removed.returncode == 0, removed.stderr

            return (await asyncio.wait_for(channel.communicate(), 60))[1]
        finally:
            if channel.returncode is None:
                channel.kill()
                await channel.wait()

    def close(self) -> None:
        with ExitStack() as stack:
            for platform in (self.a, self.b, self.node, self.edge):
                stack.callback(platform.close)


@pytest.fixture
def site(home: Path, migrated_database: str) -> Iterator[Site]:
    made = Site(home, migrated_database)
    yield made
    made.close()


async def test_keys_change_at_either_manager_and_logins_outlive_one(site: Site) -> None:
    await site.up()
    key = site.new_key(site.b, "other")
    kept = site.new_key(site.b, "kept")
    await until("the proxy knows the session", lambda: site.logs_in(key))
    said = await site.end_of_channel_after_removal(site.b, key)
    assert b"may no longer use the session" in said
    assert not await site.logs_in(key)

    site.a.kill("manager")
    await until("new logins are served by the manager that is left", lambda: site.logs_in(kept))
    said = await site.end_of_channel_after_removal(site.b, kept)
    assert b"may no longer use the session" in said
    assert not await site.logs_in(kept)
