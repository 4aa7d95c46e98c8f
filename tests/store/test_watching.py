"""Watching with the real store: events for changes, who sees them, and the overview."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.resources import GroupOptions
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.workloads.session_changes import SessionUpdate

from .conftest import FakeAgent, schedule
from .tenancy_harness import ROOT, Api, serve

ANN = Scope.system("ann", Owner("ann", "vision"))
BOB = Scope.system("bob", Owner("bob", "speech"))


def job(name: str, gpus: int = 1) -> SessionSpec:
    return SessionSpec.model_validate(
        {"name": name, "command": ["x"], "resources": {"cuda.device": gpus}, "timeout_s": 60}
    )


class Watcher:
    """``last``: the id of the last event."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.last = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event, without heartbeats."""
        kind = ""
        async with asyncio.timeout(20):
            async for raw in self._answer.content:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "id":
                    self.last = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    return kind, json.loads(value)

        raise EOFError

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        while True:
            found, event = await self.next()
            if found == kind and all(event.get(name) == value for name, value in fields.items()):
                return event


@asynccontextmanager
async def watching(
    api: Api, caller: str, query: str = "", last: str = ""
) -> AsyncIterator[Watcher]:
    headers = {"Authorization": f"Bearer {api.keys[caller]}"} | (
        {"Last-Event-ID": last} if last else {}
    )
    async with api.http.get(f"/v1/events{query}", headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        watcher = Watcher(answer)
        assert (await watcher.next())[0] == "ready"
        yield watcher


async def test_events_follow_a_session_and_its_agent(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api, watching(api, "ann") as ann:
        made = await store.sessions.create(ANN, job("mine"))
        pending = await ann.until("session", id=made.id, status="PENDING")
        assert (pending["project"], pending["user"], pending["name"]) == ("vision", "ann", "mine")
        await schedule(store)
        await ann.until("session", id=made.id, status="SCHEDULED")
        await store.agents.cordon("node-1", actor="root")
        assert (await ann.until("agent", cordon="cordon"))["id"] == "node-1"
        await store.groups.put("new", GroupOptions(), actor="root")
        await ann.until("group", name="new")


async def test_watchers_see_their_projects_only(store: Store) -> None:
    async with (
        serve(store) as api,
        watching(api, "ann", "?kinds=session") as ann,
        watching(api, "admin") as root,
    ):
        theirs = await store.sessions.create(BOB, job("theirs"))
        await root.until("session", id=theirs.id)
        mine = await store.sessions.create(ANN, job("mine"))
        await root.until("session", id=mine.id)
        assert (await ann.next())[1]["id"] == mine.id


async def test_a_watcher_follows_one_session_or_one_endpoint(store: Store) -> None:
    spec = EndpointSpec.model_validate(
        {"name": "tiny", "engine": "custom", "command": ["x"], "probe": {"path": "/"}}
    )
    async with serve(store) as api:
        endpoint = await store.endpoints.create(ANN, spec)
        mine = await store.sessions.create(ANN, job("mine"))
        async with (
            watching(api, "ann", f"?about={mine.id}") as session,
            watching(api, "ann", f"?about={endpoint.snapshot.endpoint_id}") as ann,
            watching(api, "bob", f"?about={endpoint.snapshot.endpoint_id}") as bob,
        ):
            await store.sessions.create(ANN, job("other"))
            replica = await store.sessions.create(
                ANN, job("replica"), endpoint_id=endpoint.snapshot.endpoint_id
            )
            change = SessionUpdate(labels={"a": "b"})
            assert await store.session_records.update(ANN, mine, change)
            assert (await session.next())[1]["id"] == mine.id
            assert (await ann.next())[1]["id"] == replica.id
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await bob.next()


async def test_a_watcher_resumes_or_is_told_to_read_again(store: Store) -> None:
    async with serve(store) as api:
        async with watching(api, "admin") as root:
            first = await store.sessions.create(ANN, job("first"))
            await root.until("session", id=first.id)
        second = await store.sessions.create(ANN, job("second"))
        async with watching(api, "admin", last=root.last) as resumed:
            assert (await resumed.next())[1]["id"] == second.id
        async with watching(api, "admin", last="another-7") as unknown:
            assert (await unknown.next())[0] == "reset"


async def test_a_stream_ends_with_the_rights_of_its_key(store: Store) -> None:
    async with serve(store) as api, watching(api, "ann") as ann:
        await store.keys.revoke(ROOT, "ann")
        with pytest.raises((EOFError, aiohttp.ClientError)):
            await ann.until("no such event")


async def test_a_closed_group_is_not_watched_by_others(store: Store) -> None:
    await store.groups.put("lab", GroupOptions(projects=["vision"]), actor="root")
    agent = FakeAgent(store, group="lab")
    await agent.report()

    async with serve(store) as api, watching(api, "bob") as bob, watching(api, "ann") as ann:
        for caller, seen in (("ann", True), ("bob", False), ("auditor", True)):
            for path in ("/v1/overview", "/v1/occupancy"):
                assert ("lab" in (await api.call(caller, "GET", path))[1]) is seen, (caller, path)

        await store.agents.cordon("node-1", actor="root")
        await ann.until("agent", cordon="cordon")
        await store.groups.put("open", GroupOptions(), actor="root")
        assert (await bob.next())[1]["name"] == "open"


async def test_overview_names_what_needs_attention(store: Store) -> None:
    await store.groups.put("closed", GroupOptions(projects=("speech",)), actor="t")
    for name, group in (("well", "default"), ("full", "default"), ("theirs", "closed")):
        agent = FakeAgent(store, name=name, gpus=2, group=group)
        agent.not_ready = "" if name == "well" else "the disk is full"
        await agent.report()

    async with serve(store) as api:

        async def overview(caller: str) -> Any:
            return json.loads((await api.call(caller, "GET", "/v1/overview"))[1])

        def free(found: Any) -> tuple[int, int]:
            [group] = [one for one in found["groups"] if one["name"] == "default"]
            slot = group["slots"]["cuda.device"]
            return slot["free_devices"], slot["largest_block"]

        found = await overview("admin")
        assert [(one["id"], one["not_ready"]) for one in found["troubled_agents"]] == [
            ("full", "the disk is full"),
            ("theirs", "the disk is full"),
        ]
        assert free(found) == (2, 2), "a node that takes no work offers no free device"
        assert {one["id"] for one in (await overview("ann"))["troubled_agents"]} == {"full"}
        await api.call("admin", "PUT", "/v1/agents/well/cordon", {"drain": False})
        assert free(await overview("admin")) == (0, 0)


async def test_overview_and_occupancy(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    runs = await store.sessions.create(ANN, job("runs"))
    await schedule(store)
    await store.sessions.create(BOB, job("waits", gpus=2))
    for _ in range(2):
        await schedule(store)

    async with serve(store) as api:
        _, text = await api.call("admin", "GET", "/v1/overview")
        [group] = [one for one in json.loads(text)["groups"] if one["name"] == "default"]
        assert group["sessions"] == {"SCHEDULED": 1, "PENDING": 1}
        assert sum(group["waiting"].values()) == 1
        assert group["agents"] == {"ALIVE": 1}
        assert group["slots"]["cuda.device"] == {
            "capacity": 2000,
            "used": 1000,
            "unhealthy": 0,
            "free_devices": 1,
            "largest_block": 1,
        }
        _, text = await api.call("bob", "GET", "/v1/overview")
        assert json.loads(text)["sessions"] == {"PENDING": 1}

        for caller, names in (("ann", {"runs"}), ("bob", {""}), ("auditor", {"runs"})):
            _, text = await api.call(caller, "GET", "/v1/occupancy?resource_group=default")
            [one] = json.loads(text)["items"]
            holders = [
                h for slot in one["slots"] if slot["slot"] == "cuda.device" for h in slot["holders"]
            ]
            assert {h["session"] for h in holders} == names
            assert [h["hidden"] for h in holders] == [caller == "bob"]
            assert (runs.id in text) is (caller != "bob")

        assert (
            json.loads((await api.call("admin", "GET", "/v1/occupancy?agent=other"))[1])["items"]
            == []
        )
