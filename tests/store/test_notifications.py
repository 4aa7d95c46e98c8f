"""Notifications: what subscriptions get, how often it is sent, and to whom it is never sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from aiohttp import web
from standardwebhooks import Webhook

from moorage.common.model.errors import Conflict, Forbidden, InvalidInput, NotFound
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.views.subscriptions import SubscriptionPatch
from moorage.manager.loops.notification_sender import NotificationSender
from moorage.manager.notifications.webhook import Webhooks
from moorage.manager.secrets.keyring import Keyring
from moorage.manager.store import Store
from moorage.manager.store.notifications.outbox import AttemptEnd
from tests.clocks import StoreClock
from tests.receivers import Receiver, receiver

from .conftest import FakeAgent, mark_silent, open_store
from .notification_harness import (
    SECRET,
    Notifications,
    make_people,
    of,
    run_session,
    services,
    subscribe,
)

ANN = of("ann")
BOB = of("bob")
LEAD = of("lead", role=Role.PROJECT_ADMIN)


@pytest.fixture
def keyring(tmp_path: Path, clock: StoreClock) -> Keyring:
    return Keyring(tmp_path / "keys", clock)


@pytest_asyncio.fixture
async def store(
    migrated_database: str, clock: StoreClock, keyring: Keyring
) -> AsyncIterator[Store]:
    async with open_store(migrated_database, clock, keyring=keyring) as made:
        yield made


@pytest_asyncio.fixture
async def people(store: Store) -> None:
    await make_people(store)


@pytest_asyncio.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiver() as made:
        yield made


@pytest.fixture
def notifications(store: Store, people: None, clock: StoreClock) -> Notifications:
    return Notifications(store, services(clock), clock)


async def make_due(store: Store) -> None:
    """Let the pauses after failures pass."""
    await store.database.fetch(
        "UPDATE deliveries SET due_at = now() - interval '1 s' WHERE state = 'pending'"
    )
    await store.database.fetch(
        "UPDATE subscriptions SET retry_at = NULL, next_at = now() - interval '1 s' "
        "WHERE next_at IS NOT NULL"
    )


async def states(store: Store) -> list[tuple[str, int, str]]:
    rows = await store.database.fetch(
        "SELECT state, attempts, answer FROM deliveries ORDER BY created_at, id"
    )
    return [(row["state"], row["attempts"], row["answer"]) for row in rows]


async def queue_one(store: Store, notifications: Notifications, url: str, **fields: Any) -> str:
    """A subscription of ann with one event in its queue. Returns its id."""
    made = await subscribe(store, ANN, "hook", url, **fields)
    await run_session(store, FakeAgent(store), ANN, "job")
    await notifications.assign()
    return made.id


async def test_an_end_is_sent_once_with_a_signature_that_public_libraries_verify(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    made = await subscribe(store, ANN, "hook", hook.url)
    session = await run_session(store, FakeAgent(store), ANN, "job")
    for _ in range(3):
        await notifications.run()

    [(headers, body)] = hook.requests
    Webhook(SECRET).verify(body, headers)
    assert (await store.subscriptions.get(ANN, made.id)).version == made.version, "nobody edited it"
    event = json.loads(body)
    assert event["type"] == "session.ended"
    assert event["data"] | {"kind": "session", "name": "job", "id": session} == event["data"]
    assert (event["data"]["result"], event["data"]["exit_code"]) == ("SUCCESS", 0)
    assert headers["content-type"] == "application/json"
    [(state, attempts, answer)] = await states(store)
    assert (state, attempts, answer) == ("delivered", 1, "204")
    assert await store.database.fetch("SELECT FROM event_outbox") == []


async def test_only_what_happens_after_a_subscription_was_made_is_sent(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    """Also if the database's clock is set back afterwards."""
    await subscribe(store, BOB, "others", hook.url)  # so that the outbox is written
    await run_session(store, FakeAgent(store), ANN, "before")
    await subscribe(store, ANN, "hook", hook.url)
    await store.database.fetch("UPDATE subscriptions SET created_at = now() + interval '1 hour'")
    await run_session(store, FakeAgent(store), ANN, "after")
    await notifications.run()
    assert [json.loads(body)["data"]["name"] for _, body in hook.requests] == ["after"]


async def test_without_subscriptions_nothing_is_written(
    store: Store, notifications: Notifications
) -> None:
    await run_session(store, FakeAgent(store), ANN, "job")
    assert await store.database.fetch("SELECT FROM event_outbox") == []


@pytest.mark.parametrize(
    ("fields", "exit_code", "got"),
    [
        ({"events": ["session.ended"]}, 0, "session.ended"),
        ({"events": ["session.ended"]}, 1, "session.ended"),
        ({"events": ["session.failed"]}, 0, None),
        ({"events": ["session.failed"]}, 1, "session.failed"),
        ({"events": ["session.failed", "session.ended"]}, 1, "session.failed"),
        ({"session_name": "jo*"}, 0, "session.ended"),
        ({"session_name": "jo?x"}, 0, None),
        ({"selector": "team=vision"}, 0, "session.ended"),
        ({"selector": "team!=vision"}, 0, None),
        ({"resource_groups": ["other"]}, 0, None),
        ({"resource_groups": ["default"]}, 0, "session.ended"),
        ({"enabled": False}, 0, None),
    ],
)
async def test_filters(
    store: Store,
    notifications: Notifications,
    fields: dict[str, Any],
    exit_code: int,
    got: str | None,
) -> None:
    await subscribe(store, ANN, "other", "http://127.0.0.1:1/", events=["node.lost"])
    made = await subscribe(store, ANN, "hook", "http://127.0.0.1:1/", **fields)
    labels = {"team": "vision"}
    await run_session(store, FakeAgent(store), ANN, "job", exit_code=exit_code, user_labels=labels)
    await notifications.assign()
    rows = await store.database.fetch(
        "SELECT event FROM deliveries WHERE subscription_id = $1", made.id
    )
    assert [row["event"] for row in rows] == ([got] if got else [])


async def test_a_subscription_gets_only_what_its_owner_may_read(
    store: Store, notifications: Notifications
) -> None:
    url = "http://127.0.0.1:1/"
    made = {
        "own": await subscribe(store, ANN, "own", url),
        "another's": await subscribe(store, BOB, "own", url),
        "members": await subscribe(store, BOB, "all", url, own=False),
        "viewers": await subscribe(store, of("mate", role=Role.VIEWER), "all", url, own=False),
        "foreign": await subscribe(store, of("eve", "speech"), "all", url, own=False),
        "outsiders": await subscribe(store, of("eve", "vision"), "all", url, own=False),
        "shared": await subscribe(
            store, of("bob", role=Role.PROJECT_ADMIN), "shared", url, shared=True
        ),
        "all": await subscribe(
            store, of("boss", role=Role.ADMIN), "all", url, own=False, all_projects=True
        ),
    }
    await run_session(store, FakeAgent(store), ANN, "secret-job")
    await notifications.assign()
    rows = await store.database.fetch("SELECT subscription_id FROM deliveries")
    got = {row["subscription_id"] for row in rows}
    assert {name for name, view in made.items() if view.id in got} == {
        "own", "members", "viewers", "shared", "all",
    }  # fmt: skip


async def test_rights_count_when_it_is_sent(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    subscription = await queue_one(store, notifications, hook.url)
    await store.database.fetch("DELETE FROM memberships WHERE user_name = 'ann'")
    await notifications.send()
    assert hook.requests == []
    view = await store.subscriptions.get(ANN, subscription)
    assert (view.state, view.reason) == ("disabled", "its owner may no longer read the project")


async def test_the_body_has_no_output_and_no_environment(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    await subscribe(store, ANN, "hook", hook.url)
    await run_session(
        store, FakeAgent(store), ANN, "job", env={"TOKEN": "hunter2"}, command=["run", "hunter2"]
    )
    await notifications.run()
    assert b"hunter2" not in hook.requests[0][1]


async def test_a_session_names_its_subscription(store: Store, notifications: Notifications) -> None:
    mine = await subscribe(store, ANN, "mine", "http://127.0.0.1:1/", events=[])
    await subscribe(store, BOB, "mine", "http://127.0.0.1:1/", events=[])
    agent = FakeAgent(store)
    await run_session(store, agent, ANN, "quiet")
    await run_session(store, agent, ANN, "loud", notify={"mine": ["session.failed"]}, exit_code=1)
    await notifications.assign()
    rows = await store.database.fetch("SELECT subscription_id, subject, event FROM deliveries")
    assert [tuple(row.values()) for row in rows] == [(mine.id, "loud", "session.failed")]


@pytest.mark.parametrize("status", [500, 404, 302, 429])
async def test_a_failed_attempt_is_repeated_under_the_same_id(
    store: Store, notifications: Notifications, hook: Receiver, status: int
) -> None:
    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=status, text="no", headers={"Location": hook.url + "/other"})

    hook.answer = fail
    subscription = await queue_one(store, notifications, hook.url)
    await notifications.send()
    await notifications.send()
    assert len(hook.requests) == 1, "it pauses after a failure, and follows no redirect"
    [(state, attempts, answer)] = await states(store)
    assert (state, attempts) == ("pending", 1)
    assert answer.startswith(str(status))
    view = await store.subscriptions.get(ANN, subscription)
    assert (view.state, view.queued, view.reason) == ("failing", 1, answer)

    hook.answer = None
    await make_due(store)
    await notifications.send()
    assert len(hook.requests) == 2
    assert len(set(hook.ids)) == 1
    assert [state[:2] for state in await states(store)] == [("delivered", 2)]
    view = await store.subscriptions.get(ANN, subscription)
    assert (view.state, view.queued, view.reason) == ("active", 0, "")


async def test_attempts_end(store: Store, notifications: Notifications, hook: Receiver) -> None:
    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500)

    hook.answer = fail
    await queue_one(store, notifications, hook.url)
    await store.database.fetch("UPDATE deliveries SET attempts = 14")
    await notifications.send()
    assert [state[:2] for state in await states(store)] == [("failed", 15)]
    await make_due(store)
    await notifications.send()
    assert len(hook.requests) == 1


async def test_old_deliveries_are_given_up(store: Store, notifications: Notifications) -> None:
    subscription = await queue_one(store, notifications, "http://127.0.0.1:1/")
    await store.database.fetch("UPDATE deliveries SET created_at = now() - interval '4 days'")
    assert await store.outbox.expire(3 * 86_400) == 1
    assert [state[0] for state in await states(store)] == ["failed"]
    assert (await store.subscriptions.get(ANN, subscription)).queued == 0


@pytest.mark.parametrize(("status", "days"), [(410, 0), (500, 4)])
async def test_a_subscription_that_fails_for_long_is_disabled_with_a_reason(
    store: Store, notifications: Notifications, hook: Receiver, status: int, days: int
) -> None:
    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=status)

    hook.answer = fail
    subscription = await queue_one(store, notifications, hook.url)
    await store.database.fetch(
        "UPDATE subscriptions SET failing_since = now() - make_interval(days => $1)", days
    )
    await notifications.send()
    view = await store.subscriptions.get(ANN, subscription)
    assert view.state == "disabled"
    assert str(status) in view.reason

    hook.answer = None
    patch = {name: getattr(view, name) for name in ("events", "own", "waiting_s", "before_end_s")}
    await store.subscriptions.update(ANN, subscription, SubscriptionPatch(**patch, enabled=True))
    await make_due(store)
    await notifications.send()
    view = await store.subscriptions.get(ANN, subscription)
    assert (view.state, view.queued, view.reason) == ("active", 0, "")


async def test_an_answer_is_bounded(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        block = b"x" * (1 << 20)
        for _ in range(1024):
            await response.write(block)
        return response

    hook.answer = endless
    await queue_one(store, notifications, hook.url)
    async with asyncio.timeout(5):
        await notifications.send()
    [(state, _, answer)] = await states(store)
    assert state == "delivered"
    assert len(answer) <= 500


async def test_a_slow_receiver_delays_no_other(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    released = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async with receiver() as slow:
        slow.answer = hang
        await subscribe(store, ANN, "slow", slow.url)
        await subscribe(store, ANN, "quick", hook.url)
        await run_session(store, FakeAgent(store), ANN, "job")
        await notifications.assign()
        sending = asyncio.ensure_future(notifications.send())
        await slow.wait_for(1)
        await hook.wait_for(1, seconds=3)
        assert not sending.done()
        released.set()
        await sending


async def test_a_receiver_that_never_answers_fails(
    store: Store, notifications: Notifications, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.manager.notifications.webhook.TIMEOUT_S", 0.3)

    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    hook.answer = hang
    await queue_one(store, notifications, hook.url)
    await notifications.send()
    [(state, _, answer)] = await states(store)
    assert (state, answer) == ("pending", "no complete answer within 0 s")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[fd00::1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://[fe80::1]/",
    ],
)
async def test_targets_that_are_not_public_are_refused(clock: StoreClock, url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await Webhooks((), None, clock, version="1").check(url)
    assert refused.value.field == "target"


async def test_a_name_that_later_leads_elsewhere_is_refused(clock: StoreClock) -> None:
    async def rebind(host: str, port: int) -> list[str]:
        return [answers.pop(0)]

    answers = ["93.184.216.34", "127.0.0.1"]
    webhooks = Webhooks((), None, clock, version="1", resolve=rebind)
    await webhooks.check("https://rebinds.example/")
    result = await webhooks.send("https://rebinds.example/", [], "id", b"{}")
    assert not result.succeeded
    assert "127.0.0.1" in result.answer


async def test_http_to_a_public_host_is_refused(clock: StoreClock) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    webhooks = Webhooks((".lab",), None, clock, version="1", resolve=resolve)
    with pytest.raises(InvalidInput, match="not encrypted"):
        await webhooks.check("http://example.com/")


async def test_a_manager_that_dies_after_sending_repeats_it_under_the_same_id(
    store: Store,
    notifications: Notifications,
    hook: Receiver,
    migrated_database: str,
    keyring: Keyring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first manager sends, and is gone before it records that."""
    await queue_one(store, notifications, hook.url)
    dying = asyncio.Event()

    async def die(subscription_id: str, ids: Any, outcome: AttemptEnd) -> None:
        dying.set()
        await asyncio.sleep(3600)

    async with open_store(migrated_database, keyring=keyring) as other:
        other.outbox.end = die  # type: ignore[method-assign]
        parts = notifications.services
        monkeypatch.setattr("moorage.manager.loops.notification_sender.STOP_S", 0)
        first = NotificationSender(other, notifications.clock, parts.webhooks, parts.mailer)
        await first.run_once()
        await asyncio.wait_for(dying.wait(), 10)
        await notifications.send()
        assert len(hook.requests) == 1, "its lease lasts"
        await store.database.fetch("UPDATE subscriptions SET leased_until = now()")
        await make_due(store)
        await notifications.send()
        await first.__aexit__(None, None, None)

    assert len(hook.requests) == 2
    assert len(set(hook.ids)) == 1
    assert [state[:2] for state in await states(store)] == [("delivered", 2)]


async def test_two_managers_send_each_event_once(
    store: Store,
    notifications: Notifications,
    hook: Receiver,
    migrated_database: str,
    keyring: Keyring,
) -> None:
    for number in range(5):
        await subscribe(store, ANN, f"hook-{number}", f"{hook.url}/{number}")
    agent = FakeAgent(store)
    for number in range(6):
        await run_session(store, agent, ANN, f"job-{number}")

    async with open_store(migrated_database, keyring=keyring) as other:
        second = Notifications(other, notifications.services, notifications.clock)
        rows = await store.outbox.read()
        # Both assign what is in the outbox at the same time.
        await asyncio.gather(notifications.controller.assign(rows), second.controller.assign(rows))
        for _ in range(3):
            await asyncio.gather(notifications.send(), second.send())

    assert len(hook.requests) == len(set(hook.ids)) == 30
    assert {state[:2] for state in await states(store)} == {("delivered", 1)}


async def test_what_is_queued_during_a_run_is_not_forgotten(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    """A manager that has found nothing more to send does not hide what came in the meantime."""
    subscription = await queue_one(store, notifications, hook.url)
    outbox = store.outbox
    lease = notifications.clock.new_id()
    assert len(await outbox.claim(lease, 60, 10)) == 1
    options: dict[str, Any] = {"lease_s": 60, "limit": 1, "mail_id": None, "only_tests": False}
    _, deliveries = await outbox.begin(subscription, lease, **options)
    done = AttemptEnd("delivered", "204", succeeded=True)
    await outbox.end(subscription, [d["id"] for d in deliveries], done)
    woken, deliveries = await outbox.begin(subscription, lease, **options)
    assert deliveries == []
    assert woken is not None

    await run_session(store, FakeAgent(store), ANN, "late")
    await notifications.assign()
    await outbox.release(subscription, lease, woken)
    await notifications.send()
    assert len(hook.requests) == 1
    assert b'"late"' in hook.requests[0][1]


async def test_a_full_queue_drops_and_counts(
    store: Store, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.manager.store.notifications.outbox.MAX_QUEUED", 2)
    made = await subscribe(store, ANN, "hook", "http://127.0.0.1:1/")
    agent = FakeAgent(store)
    for number in range(4):
        await run_session(store, agent, ANN, f"job-{number}")
    await notifications.assign()
    view = await store.subscriptions.get(ANN, made.id)
    assert (view.queued, view.dropped) == (2, 2)


async def test_long_waits_and_near_ends(
    store: Store, notifications: Notifications, clock: StoreClock
) -> None:
    events = ["session.waiting", "session.time-limit"]
    await subscribe(store, ANN, "hook", "http://127.0.0.1:1/", events=events)
    spec = {"command": ["a"], "resources": {"cpu": 1}}
    await store.sessions.create(ANN, SessionSpec.model_validate(spec | {"name": "waits"}))
    await store.sessions.create(ANN, SessionSpec.model_validate(spec | {"name": "fresh"}))
    ends = await store.sessions.create(ANN, SessionSpec.model_validate(spec | {"name": "ends"}))
    db = store.database
    await db.fetch("UPDATE subscriptions SET checked_at = now() - interval '1 minute'")
    await db.fetch(
        "UPDATE sessions SET created_at = now() - interval '3601 s' WHERE name = 'waits'"
    )
    await db.fetch(
        "UPDATE sessions SET status = 'RUNNING', deadline_at = now() + interval '595 s' "
        "WHERE id = $1",
        ends.id,
    )
    for _ in range(3):  # each manager examines them at its first run
        await Notifications(store, notifications.services, clock).assign()

    rows = await db.fetch("SELECT event, subject FROM deliveries ORDER BY event")
    assert [tuple(row.values()) for row in rows] == [
        ("session.time-limit", "ends"),
        ("session.waiting", "waits"),
    ]


async def test_lost_nodes_and_budgets_and_endpoints(
    store: Store, notifications: Notifications
) -> None:
    boss = of("boss", role=Role.ADMIN)
    url = "http://127.0.0.1:1/"
    events = ["node.lost", "budget.warning", "budget.exhausted", "endpoint.degraded"]
    await subscribe(store, boss, "boss", url, events=events, all_projects=True, own=False)
    await subscribe(store, ANN, "ann", url, events=events[1:])
    await subscribe(store, of("eve", "speech"), "eve", url, events=events[1:], own=False)
    await FakeAgent(store).report()
    await mark_silent(store, "node-1")
    alert = (
        "INSERT INTO budget_alerts (scope, name, unit, period, resets_at, level, threshold, used) "
        "VALUES ($1, $2, 'tokens', 'day', now() + interval '1 h', $3, 5, 6)"
    )
    await store.database.fetch(alert, "project", "vision", "soft")
    await store.database.fetch(alert, "user", "bob", "hard")
    await notifications.assign()
    rows = await store.database.fetch(
        "SELECT s.name, d.event, d.subject FROM deliveries d "
        "JOIN subscriptions s ON s.id = d.subscription_id ORDER BY s.name, d.event"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ann", "budget.warning", "project vision"),
        ("boss", "budget.exhausted", "user bob"),
        ("boss", "budget.warning", "project vision"),
        ("boss", "node.lost", "node-1"),
    ]


async def test_who_sees_and_changes_subscriptions(store: Store, people: None) -> None:
    url = "http://127.0.0.1:1/private/path"
    own = await subscribe(store, ANN, "own", url)
    with pytest.raises(Conflict):
        await subscribe(store, ANN, "own", url)
    with pytest.raises(Forbidden):
        await subscribe(store, ANN, "shared", url, shared=True)
    with pytest.raises(NotFound):
        await subscribe(store, ANN, "all", url, all_projects=True)

    lead = of("bob", role=Role.PROJECT_ADMIN)
    shared = await subscribe(store, lead, "shared", url, shared=True)
    assert [view.name for view in (await store.subscriptions.page(BOB)).items] == ["shared"]
    assert [view.name for view in (await store.subscriptions.page(lead)).items] == ["own", "shared"]
    assert (await store.subscriptions.page(of("eve", "speech"))).items == []
    masked = await store.subscriptions.get(ANN, shared.id)
    assert masked.target == "http://127.0.0.1:1/…"
    for refused in (
        store.subscriptions.delete(ANN, shared.id),
        store.subscriptions.test(ANN, shared.id, {}),
    ):
        with pytest.raises(Forbidden):
            await refused
    with pytest.raises(NotFound):
        await store.subscriptions.delete(BOB, own.id)


async def test_secrets_are_encrypted_rotated_and_deleted(
    store: Store, notifications: Notifications, hook: Receiver
) -> None:
    made = await subscribe(store, ANN, "hook", hook.url)
    rows = await store.database.fetch("SELECT sealed FROM secrets")
    assert SECRET.encode() not in rows[0]["sealed"]
    new = "whsec_" + "QUJD" * 8
    view = await store.subscriptions.rotate(ANN, made.id, new, overlap_s=3600)
    assert view.previous_secret_until is not None
    await run_session(store, FakeAgent(store), ANN, "job")
    await notifications.run()
    headers, body = hook.requests[0]
    Webhook(SECRET).verify(body, headers)
    Webhook(new).verify(body, headers)
    assert SECRET not in view.model_dump_json()

    await store.subscriptions.delete(ANN, made.id)
    assert await store.database.fetch("SELECT FROM secrets") == []
    assert await store.database.fetch("SELECT FROM deliveries") == []


async def test_a_subscription_gets_an_event_only_once(
    store: Store, notifications: Notifications
) -> None:
    await queue_one(store, notifications, "http://127.0.0.1:1/")
    with pytest.raises(asyncpg.UniqueViolationError):
        await store.database.fetch(
            "INSERT INTO deliveries (id, subscription_id, event, key, subject, happened_at, body, "
            "due_at) SELECT gen_random_uuid(), subscription_id, event, key, subject, happened_at, "
            "body, due_at FROM deliveries"
        )
