"""The client without asyncio, and the retries of calls that fail during an outage."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
from fake_manager import KEY, FakeManager
from scripted_session import batch

from moorage.common.model.spec import SessionSpec
from moorage.sdk import ApiError, Client, SyncClient, Unreachable, resources, transport

# Calls that only make sense where a loop runs.
FOR_ASYNCIO = {"events": {"changes", "states"}, "sessions": {"exec"}}
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


def calls(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(Client.__annotations__))
def test_it_has_every_call_of_the_client(name: str) -> None:
    resource = getattr(Client("http://127.0.0.1:1"), name)
    blocking = getattr(SyncClient("http://127.0.0.1:1"), name)
    assert name in dir(SyncClient("http://127.0.0.1:1")), "it is offered for completion"
    assert calls(type(resource)) - FOR_ASYNCIO.get(name, set()) == calls(type(blocking))


def test_a_resource_has_the_name_of_its_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(resources.__path__)}
    assert set(Client.__annotations__) == set(SyncClient.__annotations__) == modules


def test_calls_and_iterators(manager: FakeManager) -> None:
    with SyncClient(manager.url, KEY) as client:
        made = client.sessions.create(SPEC)
        assert client.sessions.get("job").id == made.id
        assert [view.id for view in client.sessions.list()] == [made.id]
        assert [view.id for view in client.sessions.list().page()] == [made.id]
        assert [len(page.items) for page in client.sessions.list().pages(size=1)] == [1]
        assert isinstance(b"".join(client.sessions.logs("job")), bytes)
        left = client.events.follow()
        assert next(left).kind
        with pytest.raises(ApiError, match="none"):
            client.sessions.get("none")

    left.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="within"):
        list(client.sessions.list())


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The client's log lines. The fake manager's server also logs early disconnects of a client."""
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
        read = client.sessions.logs(
            "told", follow=True, tail=tail, on_loss=lambda: told.append("lost")
        )
        assert b"".join(read) == expected
        assert (told, logged(caplog)) == (["lost"], [])
        assert b"".join(client.sessions.logs("logged", follow=True, tail=tail)) == expected

    assert logged(caplog) == ["output was lost"]


def test_it_works_where_a_loop_runs_as_in_notebooks(manager: FakeManager) -> None:
    async def cell() -> str:
        with SyncClient(manager.url, KEY) as client:
            return client.sessions.create(SPEC).name

    assert asyncio.run(cell()) == "job"


def test_a_creation_without_an_answer_is_repeated_and_happens_once(
    manager: FakeManager, quick: None
) -> None:
    manager.lost_responses = 2
    with SyncClient(manager.url, KEY, retries=3) as client:
        assert client.sessions.create(SPEC).name == "job"
        assert len(list(client.sessions.list())) == 1
    assert created(manager) == 3


@pytest.mark.parametrize(
    ("status", "repeated"), [(503, True), (429, True), (409, False), (500, False)]
)
def test_only_outages_are_repeated(
    manager: FakeManager, quick: None, status: int, repeated: bool
) -> None:
    manager.can("GET", "/v1/sessions/job", status, "a page", times=2)
    with SyncClient(manager.url, KEY, retries=2) as client:
        client.sessions.create(SPEC)
        if repeated:
            assert client.sessions.get("job").name == "job"
        else:
            with pytest.raises(ApiError):
                client.sessions.get("job")

    asked = sum(request == "GET /v1/sessions/job" for request in manager.requests)
    assert asked == (3 if repeated else 1)


def test_nothing_is_repeated_unless_it_is_asked(manager: FakeManager, quick: None) -> None:
    manager.lost_responses = 1
    with SyncClient(manager.url, KEY) as client, pytest.raises(Unreachable):
        client.sessions.create(SPEC)
    manager.can("POST", "/v1/sessions/job/stop", 503, "a page")
    manager.can("DELETE", "/v1/sessions/job", 503, "a page")
    with SyncClient(manager.url, KEY, retries=3) as client, pytest.raises(ApiError):
        client.sessions.stop("job")  # another call might stop another one
    assert sum("/v1/sessions/job" in request for request in manager.requests) == 1
