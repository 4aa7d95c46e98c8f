"""Long requests end when, and only when, their caller loses its rights."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from moorage.common.aio.clock import SystemClock
from moorage.common.model.commands import PROTOCOL, Channel, frame
from moorage.common.model.errors import StoreUnavailable, Unauthenticated
from moorage.common.model.roles import Role
from moorage.manager.api.http import long_requests
from moorage.manager.api.http.long_requests import OpenRequests, has_lost_rights
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope

from .served_api import ADMIN_KEY, MEMBER_KEY, Api, serving_api


@pytest.fixture(autouse=True)
def looks_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only changes make the manager look again."""
    monkeypatch.setattr(long_requests, "YOUNG_S", 0.05)
    monkeypatch.setattr(long_requests, "RECHECK_S", 3600.0)


async def test_stream_of_a_revoked_key_ends(api: Api) -> None:
    await api.request(
        "POST", "/v1/sessions", key=MEMBER_KEY, json={"name": "job", "command": ["true"]}
    )
    api.logs.chunks = [b"begin\n"]
    headers = {"Authorization": f"Bearer {MEMBER_KEY}"}
    async with (
        asyncio.timeout(10),
        api.http.get("/v1/sessions/job/logs?follow=true", headers=headers) as response,
    ):
        assert await response.content.readany() == b"begin\n"
        await asyncio.sleep(0.2)  # the duration of some checks
        api.logs.more.put_nowait(b"more\n")
        assert await response.content.readany() == b"more\n"
        await api.request("DELETE", "/v1/keys/ada")
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()

        await api.logs.closed.wait()


async def test_terminal_of_a_revoked_key_ends(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has just begun."""
    monkeypatch.setattr(long_requests, "YOUNG_S", 0.5)
    await api.request("POST", "/v1/sessions", json={"name": "dev", "type": "interactive"})
    _, created = await api.request("POST", "/v1/keys", json={"name": "second", "role": "admin"})
    headers = {"Authorization": f"Bearer {created['secret']}"}
    async with (
        asyncio.timeout(10),
        api.http.ws_connect("/v1/sessions/dev/exec", headers=headers, protocols=(PROTOCOL,)) as ws,
    ):
        await ws.send_json({"command": ["sh"], "stdin": True})
        await ws.send_bytes(frame(Channel.STDIN, b"x"))
        await ws.receive()
        assert not api.execs.disconnected.is_set()
        await api.request("DELETE", "/v1/keys/second")
        await api.execs.disconnected.wait()


async def test_stream_goes_on_while_the_database_is_away(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json={"name": "job", "command": ["true"]})
    await api.request("POST", "/v1/keys", json={"name": "other"})
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        asyncio.timeout(10),
        api.http.get("/v1/sessions/job/logs?follow=true", headers=headers) as response,
    ):
        await api.request("DELETE", "/v1/keys/other")
        api.database.error = StoreUnavailable()
        await asyncio.sleep(0.2)
        api.database.error = None
        api.logs.more.put_nowait(b"more\n")
        assert await response.content.readany() == b"more\n"


async def test_key_that_revokes_itself_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check ignores requests that have just begun."""
    monkeypatch.setattr(long_requests, "YOUNG_S", 0.5)
    monkeypatch.setattr(long_requests, "RECHECK_S", 0.02)
    refused = 0
    aborted = asyncio.Event()

    async def refuse() -> Scope:
        nonlocal refused
        refused += 1
        raise Unauthenticated("the API key is invalid or revoked")

    request: Any = SimpleNamespace(
        path="/v1/keys/own", transport=SimpleNamespace(abort=aborted.set)
    )
    requests = OpenRequests(SystemClock(), lambda _: None)
    async with asyncio.timeout(10), asynccontextmanager(requests.running)(web.Application()):
        with requests.ending_without_rights(request, BEFORE, refuse):
            await asyncio.sleep(0.1)
            assert not refused
            await aborted.wait()


async def test_lost_notification_costs_a_few_seconds(
    api_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_requests, "RECHECK_S", 0.05)
    async with serving_api(api_database) as api:
        await api.request(
            "POST", "/v1/sessions", key=MEMBER_KEY, json={"name": "job", "command": ["true"]}
        )
        api.logs.chunks = [b"begin\n"]
        headers = {"Authorization": f"Bearer {MEMBER_KEY}"}
        async with (
            asyncio.timeout(10),
            api.http.get("/v1/sessions/job/logs?follow=true", headers=headers) as response,
        ):
            assert await response.content.readany() == b"begin\n"
            await api.revoke_unnoticed("ada")
            api.clock.advance(3.0)  # the manager's knowledge of the key is discarded
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()


BEFORE = Scope("key:ada", Owner("ada", "vision"), Role.MEMBER, ("vision",))


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (BEFORE, False),
        (replace(BEFORE, actor="key:renamed"), False),
        (replace(BEFORE, role=Role.VIEWER), True),
        (replace(BEFORE, projects=("speech",)), True),
        (replace(BEFORE, owner=Owner("ada", "speech")), True),
    ],
)
def test_change_of_rights(now: Scope, lost: bool) -> None:
    assert has_lost_rights(BEFORE, now) is lost
