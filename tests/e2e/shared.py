"""A platform that many tests share. Each finds it as new; what it leaves there is its own
failure."""

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
    """``moorage up``, started for the first test that asks for it; again after one that broke
    it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Platform | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Platform]:
        """To one test. Raises ``AssertionError`` for what it leaves."""
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
    """End what a test left running, and remove the records: the next one finds names and lists
    free."""
    for pipeline in await client.list_pipelines():
        if not has_ended(pipeline):
            await client.stop_pipeline(pipeline.id)
    for endpoint in (await client.list_endpoints()).items:
        await client.delete_endpoint(endpoint.name)
    for session in (await client.list_sessions(statuses=LIVE, limit=500)).items:
        with contextlib.suppress(ApiError):  # those of endpoints end with them
            await client.stop_session(session.id)

    async def nothing_runs() -> bool:
        live = (await client.list_sessions(statuses=LIVE, limit=500)).items
        endpoints = (await client.list_endpoints()).items
        return not live and not endpoints and not await _used(client)

    await until("everything has ended, and its slots are free", nothing_runs)
    for session in (await client.list_sessions(statuses=TERMINAL, limit=500)).items:
        with contextlib.suppress(ApiError):  # those of pipelines stay with them
            await client.remove_session(session.id)


async def _used(client: Client) -> list[str]:
    offers = [offer for agent in await client.list_agents() for offer in agent.offers]
    return [f"{offer.slot}={offer.used}" for offer in offers if offer.used]


async def _facts(client: Client, platform: Platform) -> Facts:
    """What tests can change for those after them. Prices and users are no part: they stay for
    ever."""
    return {
        "agents": [f"{one.id} {one.status}" for one in await client.list_agents()],
        "addresses": [(platform.home / "connection.json").read_text()],
        "budgets": [f"{one.scope} {one.name} {one.unit}" for one in await client.list_budgets()],
        "groups": [f"{one.name} {one.options!r}" for one in await client.list_groups()],
        "keys": [one.name for one in await client.list_keys()],
        "quotas": [f"{one.scope} {one.name}" for one in await client.list_quotas()],
        "secrets": [one.name for one in await client.list_secrets()],
        "templates": [one.ref for one in await client.list_templates()],
        "workspaces": [one.session for one in (await client.list_workspaces()).items],
    }
