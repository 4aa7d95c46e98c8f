"""Client without asyncio, and the repetition of calls that met an outage."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from fake_manager import KEY, FakeManager
from scripted_session import batch

from moorage.common.model.spec import SessionSpec
from moorage.sdk import ApiError, Client, SyncClient, Unreachable, transport

SPEC = SessionSpec(name="job", command=["true"])


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with FakeManager() as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE_S", 0.01)


def created(manager: FakeManager) -> int:
    return sum(request == "POST /v1/sessions" for request in manager.requests)


def test_it_has_every_call_of_the_client() -> None:
    calls = {
        name
        for name, method in inspect.getmembers(Client)
        if not name.startswith("_") and inspect.iscoroutinefunction(method)
    }
    assert calls - {"call", "every", "stream"} <= set(dir(SyncClient))


def test_calls_and_iterators(manager: FakeManager) -> None:
    with SyncClient(manager.url, KEY) as client:
        made = client.create_session(SPEC)
        assert client.get_session("job").id == made.id
        assert isinstance(b"".join(client.logs("job")), bytes)
        left = client.events()
        assert next(left).kind
        with pytest.raises(ApiError, match="none"):
            client.get_session("none")

    left.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="within"):
        client.list_sessions()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the client said. The server of the fake manager says, too, when a client disconnects
    early."""
    records = [record for record in caplog.records if record.name.startswith("moorage.sdk")]
    return [record.getMessage().partition(":")[0] for record in records]


@pytest.mark.parametrize("tail", [None, 2])
def test_followed_log_goes_on_and_a_loss_is_told(
    manager: FakeManager, caplog: pytest.LogCaptureFixture, tail: int | None
) -> None:
    steps = [b"step %05d: loss 0.5\n" % number for number in range(5)]
    told: list[str] = []
    for name in ("told", "logged"):
        manager.add_session(
            batch(name), log=steps[:], log_breaks=1, log_rotates=2 if tail is None else 4
        )

    expected = steps[0] + b"".join(steps[2:]) if tail is None else steps[3] + steps[4]
    with SyncClient(manager.url, KEY) as client:
        read = client.logs("told", follow=True, tail=tail, on_loss=lambda: told.append("lost"))
        assert b"".join(read) == expected
        assert (told, logged(caplog)) == (["lost"], [])
        assert b"".join(client.logs("logged", follow=True, tail=tail)) == expected

    assert logged(caplog) == ["output was lost"]


def test_it_works_where_a_loop_runs_as_in_notebooks(manager: FakeManager) -> None:
    async def cell() -> str:
        with SyncClient(manager.url, KEY) as client:
            return client.create_session(SPEC).name

    assert asyncio.run(cell()) == "job"


def test_a_creation_without_an_answer_is_repeated_and_happens_once(
    manager: FakeManager, quick: None
) -> None:
    manager.lost_responses = 2
    with SyncClient(manager.url, KEY, retries=3) as client:
        assert client.create_session(SPEC).name == "job"
        assert len(client.list_sessions().items) == 1
    assert created(manager) == 3


@pytest.mark.parametrize(
    ("status", "repeated"), [(503, True), (429, True), (409, False), (500, False)]
)
def test_only_outages_are_repeated(
    manager: FakeManager, quick: None, status: int, repeated: bool
) -> None:
    manager.can("GET", "/v1/sessions/job", status, "a page", times=2)
    with SyncClient(manager.url, KEY, retries=2) as client:
        client.create_session(SPEC)
        if repeated:
            assert client.get_session("job").name == "job"
        else:
            with pytest.raises(ApiError):
                client.get_session("job")

    asked = sum(request == "GET /v1/sessions/job" for request in manager.requests)
    assert asked == (3 if repeated else 1)


def test_nothing_is_repeated_unless_it_is_asked(manager: FakeManager, quick: None) -> None:
    manager.lost_responses = 1
    with SyncClient(manager.url, KEY) as client, pytest.raises(Unreachable):
        client.create_session(SPEC)
    manager.can("POST", "/v1/sessions/job/stop", 503, "a page")
    manager.can("DELETE", "/v1/sessions/job", 503, "a page")
    with SyncClient(manager.url, KEY, retries=3) as client, pytest.raises(ApiError):
        client.stop_session("job")  # another call might stop another one
    assert sum("/v1/sessions/job" in request for request in manager.requests) == 1
