"""Watching from the command line: a list is refreshed by events, and without them by polling."""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_manager import KEY, FakeManager

from moorage.cli import watch
from moorage.common.views.events import EventKind
from moorage.sdk import Client

Kinds = tuple[EventKind, ...]


@pytest.mark.parametrize("kinds", [(), ("session", "endpoint")])
async def test_a_list_is_refreshed_when_the_stream_says_so(manager: FakeManager, kinds: Kinds) -> None:
    async with Client(manager.url, KEY) as client:
        refreshes, began = watch.refreshes(client, kinds), time.monotonic()
        async with asyncio.timeout(20):
            await anext(refreshes)
            await anext(refreshes)  # the stream has begun
        assert time.monotonic() - began < watch.REWATCH_S
        await refreshes.aclose()


async def test_a_list_is_refreshed_while_there_is_no_stream(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "REWATCH_S", 0.1)
    async with Client("http://127.0.0.1:1", KEY) as client:
        refreshes = watch.refreshes(client, ())
        async with asyncio.timeout(20):
            for _ in range(3):
                await anext(refreshes)
        await refreshes.aclose()
