"""The client against the real API."""

import socket

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fake_manager import KEY, FakeManager
from scripted_session import batch

from moorage.common.model.errors import InvalidInput
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import LIVE, EndpointStatus, Outcome, Status
from moorage.common.views.resources import GroupOptions, Problem
from moorage.manager.api.sessions.handlers import ListedStatus
from moorage.sdk import ApiError, Client, Unreachable


def endpoint(name: str) -> EndpointSpec:
    return EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())


async def test_create_get_stop_and_history_of_a_session(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client:
        created = await client.sessions.create(batch("train/1"))
        assert (created.name, created.status) == ("train/1", Status.PENDING)
        assert (await client.sessions.get("train/1")).id == created.id
        stopped = await client.sessions.stop(created.id)
        assert stopped.status is Status.TERMINATING
        history = await client.sessions.history(created.id)
        assert [e.to_status for e in history] == [
            Status.PENDING,
            Status.SCHEDULED,
            Status.TERMINATING,
        ]


async def test_create_with_a_lost_response_can_be_repeated(manager: FakeManager) -> None:
    manager.lost_responses = 1
    async with Client(manager.url, KEY) as client:
        with pytest.raises(Unreachable):
            await client.sessions.create(batch("job"), idempotency_key="once")
        created = await client.sessions.create(batch("job"), idempotency_key="once")
    assert [created.id] == [session.id for session in manager.sessions]


def test_sessions_can_be_listed_by_every_status() -> None:
    assert set(ListedStatus) == {*Status, *Outcome}


async def test_list_sessions_continues_at_the_cursor(manager: FakeManager) -> None:
    for number in range(5):
        manager.add_session(batch(f"job-{number}"))

    async with Client(manager.url, KEY) as client:
        live = client.sessions.list(statuses=LIVE)
        first = await live.page(size=3)
        assert [view.name for view in first] == ["job-4", "job-3", "job-2"]
        rest = await live.page(first.next, size=3)
        assert [view.name for view in rest] == ["job-1", "job-0"]
        assert rest.next is None
        assert [len(page.items) async for page in live.pages(size=2)] == [2, 2, 1]
        assert [view.name async for view in live] == [view.name for view in await live]
        newest = client.sessions.list(statuses=LIVE, limit=4)
        assert [view.name for view in await newest] == ["job-4", "job-3", "job-2", "job-1"]
        assert await client.sessions.list(statuses=[Status.ERROR]) == []
        manager.add_session(batch("bad"), status=Status.TERMINATED, script=[], exit_code=3)
        failed = await client.sessions.list(statuses=[Outcome.FAILED])
        assert [view.name for view in failed] == ["bad"]
        assert await client.sessions.list(statuses=[Outcome.SUCCEEDED]) == []


@pytest.mark.parametrize("name", ["org/model", "a/../b", "a:b", "x/stop"])
async def test_endpoint_names_are_escaped(manager: FakeManager, name: str) -> None:
    async with Client(manager.url, KEY) as client:
        await client.endpoints.create(endpoint(name))
        assert (await client.endpoints.get(name)).name == name
        assert (await client.endpoints.scale(name, 3)).replicas == 3
        assert (await client.endpoints.delete(name)).status is EndpointStatus.STOPPED
        assert await client.endpoints.list() == []


async def test_groups_agents_and_health(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client:
        changed = await client.groups.update("default", GroupOptions(agent_selection="dispersed"))
        assert changed == await client.groups.get("default")
        assert [group.name for group in await client.groups.list()] == ["default"]
        [agent] = await client.agents.list()
        assert agent == await client.agents.get("node-1")
        health = await client.health()
        assert health.checks == {"postgres": "not yet"}


async def test_logs_come_in_pieces_and_by_tail(manager: FakeManager) -> None:
    manager.add_session(batch("job"), log=[b"one\ntw", b"o\nthree\n"])
    async with Client(manager.url, KEY) as client:
        assert (
            b"".join([p async for p in client.sessions.logs("job", follow=True)])
            == b"one\ntwo\nthree\n"
        )
        assert b"".join([p async for p in client.sessions.logs("job", tail=1)]) == b"three\n"
        with pytest.raises(ApiError) as caught:
            _ = [p async for p in client.sessions.logs("nobody")]
        assert caught.value.status == 404


@pytest.mark.parametrize("tail", [None, 2])
async def test_followed_log_goes_on_where_it_was_cut_off(
    manager: FakeManager, tail: int | None
) -> None:
    manager.add_session(batch("job"), log=[b"one\n", b"two\n", b"three\n"], log_breaks=2)
    async with Client(manager.url, KEY) as client:
        read = b"".join([p async for p in client.sessions.logs("job", follow=True, tail=tail)])
    assert read == (b"one\n" if tail is None else b"") + b"two\nthree\n"


@pytest.mark.parametrize("tail", [None, 3])
async def test_followed_log_that_was_rotated_goes_on(
    manager: FakeManager, tail: int | None
) -> None:
    steps = [b"step %05d: loss 0.5\n" % number for number in range(4)]
    manager.add_session(batch("job"), log=steps[:], log_breaks=1, log_rotates=2)
    told: list[str] = []
    async with Client(manager.url, KEY) as client:
        pieces = client.sessions.logs(
            "job", follow=True, tail=tail, on_loss=lambda: told.append("lost")
        )
        read = b"".join([piece async for piece in pieces])

    assert read == (steps[0] if tail is None else steps[1]) + steps[2] + steps[3]
    assert told == ["lost"]


async def test_log_that_stays_away_raises(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.sdk.log_following.OUTAGE_S", -1.0)
    manager.add_session(batch("job"), log=[b"one\n"], log_breaks=1_000)
    async with Client(manager.url, KEY) as client:
        with pytest.raises(Unreachable, match="closed the connection in mid-answer"):
            _ = [p async for p in client.sessions.logs("job", follow=True)]


async def test_error_carries_the_problem_document(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client:
        await client.endpoints.create(endpoint("tiny"))
        with pytest.raises(ApiError) as caught:
            await client.endpoints.create(endpoint("tiny"))

    assert caught.value.status == 409
    assert isinstance(caught.value.problem, Problem)
    assert (caught.value.problem.code, caught.value.next_step) == (
        "conflict",
        "choose another name",
    )


async def test_invalid_key_is_unauthenticated(manager: FakeManager) -> None:
    async with Client(manager.url, "wrong") as client:
        with pytest.raises(ApiError) as caught:
            await client.agents.list()
    assert caught.value.status == 401


@pytest.mark.parametrize("status", [200, 502])
async def test_another_server_at_the_address_is_reported(manager: FakeManager, status: int) -> None:
    manager.can("GET", "/v1/agents", status, "<html>It works!</html>")
    async with Client(manager.url, KEY) as client:
        with pytest.raises(ApiError, match=r"It works.*not a Moorage manager.*--url"):
            await client.agents.list()


async def test_unreachable_manager() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        async with Client(f"http://127.0.0.1:{unused.getsockname()[1]}", KEY) as client:
            with pytest.raises(Unreachable, match=r"no manager answers.*moorage up"):
                await client.agents.list()


async def test_unresponsive_server_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with Client(
            f"http://127.0.0.1:{silent.getsockname()[1]}", KEY, timeout=0.1
        ) as client:
            with pytest.raises(Unreachable, match=r"within 0\.1 s"):
                await client.agents.list()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8700", "ftp://host", "http://", "http://host:port"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="https://moorage"):
        Client(url)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ"])
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="API key"):
        Client("http://127.0.0.1:1", key)


async def test_empty_name_sends_no_request(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client:
        with pytest.raises(InvalidInput, match="empty"):
            await client.sessions.get("")
    assert manager.requests == []


async def test_answers_of_a_newer_manager_are_taken_as_far_as_they_are_known(
    manager: FakeManager,
) -> None:
    """Items that the client could not read itself are kept for the caller."""
    manager.add_session(batch("job"))
    async with Client(manager.url, KEY) as client:
        known = await client.sessions.get("job")

    shown = known.model_dump(mode="json")
    shown["spec"]["tomorrow"] = shown["tomorrow"] = None
    unread = {"kind": "session", "name": "odd", "detail": "needs a newer manager: status"}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"items": [shown], "next": None, "unreadable": [unread]})

    app = web.Application()
    app.router.add_get("/v1/sessions", answer)
    async with TestServer(app) as newer, Client(str(newer.make_url("/")), KEY) as client:
        assert await client.sessions.list() == [known]
        assert client.unreadable == {("session", "odd"): "needs a newer manager: status"}
