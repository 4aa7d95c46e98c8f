"""A platform that many tests share. Each test finds it as if it were new; a test that leaves
anything there fails."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.common.model.status import LIVE, TERMINAL
from moorage.sdk import ApiError, Client
from moorage.sdk.pipelines import has_ended

from .harness import Platform, kernels_below, until

Facts = dict[str, list[str]]


class SharedPlatform:
    """``moorage up``, started for the first test that asks for it, and restarted after a test that
    broke it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Platform | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Platform]:
        """Lend the platform to one test. Raises ``AssertionError`` for anything that it leaves."""
        if self._running is None:
            home = Path(tempfile.mkdtemp(prefix="up-", dir=self._folder))
            home.chmod(0o711)
            self._running = Platform(home)
            self._running.start("up")

        platform = self._running
        await platform.wait_until_ready()
        environment = dict(platform.env)
        async with platform.client() as client:
            before = await _facts(client, platform)

        yield platform
        platform.env = environment
        try:
            async with platform.client() as client:
                await _clear(client)
                after = await _facts(client, platform)
                changed = {
                    kind: (before[kind], after[kind])
                    for kind in before
                    if before[kind] != after[kind]
                }
                assert not changed, f"a test restores what it changes; before and after: {changed}"

            assert kernels_below(platform.home) == {}, "no process of a kernel is left"
            platform.check_logs()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        platform = self._running
        self._running = None
        if platform is not None:
            platform.close()


async def _clear(client: Client) -> None:
    """Stop everything that a test left running, and remove the records, so that the next test finds
    free names and empty lists."""
    for pipeline in await client.pipelines.list():
        if not has_ended(pipeline):
            await client.pipelines.stop(pipeline.id)
    for endpoint in await client.endpoints.list():
        await client.endpoints.delete(endpoint.name)
    for session in await client.sessions.list(statuses=LIVE):
        with contextlib.suppress(ApiError):  # sessions of endpoints end with them
            await client.sessions.stop(session.id)

    async def nothing_runs() -> bool:
        live = await client.sessions.list(statuses=LIVE)
        endpoints = await client.endpoints.list()
        return not live and not endpoints and not await _used(client)

    await until("everything has ended, and its slots are free", nothing_runs)
    for session in await client.sessions.list(statuses=TERMINAL):
        with contextlib.suppress(ApiError):  # sessions of pipelines stay with them
            await client.sessions.delete(session.id)


async def _used(client: Client) -> list[str]:
    offers = [offer for agent in await client.agents.list() for offer in agent.offers]
    return [f"{offer.slot}={offer.used}" for offer in offers if offer.used]


async def _facts(client: Client, platform: Platform) -> Facts:
    """State that a test can change for later ones. Prices and users are excluded, because they
    stay."""
    return {
        "agents": [f"{one.id} {one.status}" for one in await client.agents.list()],
        "addresses": [(platform.home / "connection.json").read_text()],
        "budgets": [f"{one.scope} {one.name} {one.unit}" for one in await client.budgets.list()],
        "groups": [f"{one.name} {one.options!r}" for one in await client.groups.list()],
        "keys": [one.name for one in await client.keys.list()],
        "quotas": [f"{one.scope} {one.name}" for one in await client.quotas.list()],
        "secrets": [one.name for one in await client.secrets.list()],
        "templates": [one.ref for one in await client.templates.list()],
        "workspaces": [one.session for one in (await client.workspaces.list()).items],
    }
