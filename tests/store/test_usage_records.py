"""Usage records and limit shares: what Postgres keeps from the proxies' reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.link.messages import RequestLimits
from moorage.common.link.proxy_messages import (
    LimitNeed,
    LimitShare,
    RecordsAck,
    UsageBatch,
    UsageRecord,
)
from moorage.common.model.errors import InvalidInput
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.identity import ProjectPatch, ProjectSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.metering import LimitView, ModelUsage, UsageSplit
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.limit_shares import StoredShares, share_of
from moorage.manager.store import Store
from moorage.manager.store.platform import retention

SYSTEM = Scope.system("t")
NOW = datetime.now(UTC)
NOW_MS = round(NOW.timestamp() * 1000)
RECORD = UsageRecord(
    1,
    NOW_MS - 2000,
    ended_ms=NOW_MS,
    project="vision",
    user="ann",
    key_id="k",
    model="m",
    requests=3,
    tokens_in=10,
    tokens_out=20,
    tokens_cached=5,
)


def batch(*records: UsageRecord, epoch: str = "e") -> UsageBatch:
    return UsageBatch(epoch, records)


async def totals(store: Store, scope: Scope = SYSTEM) -> list[tuple[str, int, int]]:
    found = await split(store, scope, by=["project"])
    return [(one.project or "", one.requests, one.tokens_out) for one in found]


async def split(
    store: Store, scope: Scope = SYSTEM, *, limit: int = 500, **given: object
) -> list[ModelUsage]:
    """All pages of last week's usage."""
    hour = NOW.replace(minute=0, second=0, microsecond=0)
    found: list[ModelUsage] = []
    cursor = None
    while True:
        page = await store.usage_records.page(
            scope,
            hour - timedelta(days=7),
            hour + timedelta(hours=1),
            UsageSplit.model_validate(given),
            cursor=cursor,
            limit=limit,
        )
        found += page.items
        if (cursor := page.next) is None:
            return found


async def compact(store: Store, kept_s: float = 365 * 86_400.0) -> None:
    while await store.usage_records.compact(kept_s):
        pass


def earlier(record: UsageRecord, hours: float) -> UsageRecord:
    ms = round(hours * 3_600_000)
    return replace(record, began_ms=record.began_ms - ms, ended_ms=record.ended_ms - ms)


async def test_record_that_comes_twice_counts_once(store: Store) -> None:
    first = batch(RECORD)
    second = batch(replace(RECORD, sequence=2, requests=4))
    assert await store.usage_records.put("p", [first]) == (RecordsAck("e", 1),)
    again = await asyncio.gather(*(store.usage_records.put("p", [first, second]) for _ in range(5)))
    assert set(again) == {(RecordsAck("e", 1), RecordsAck("e", 2))}
    assert await totals(store) == [("vision", 7, 40)]
    await store.usage_records.put("other", [first])
    await store.usage_records.put("p", [batch(RECORD, epoch="f")])
    assert await totals(store) == [("vision", 13, 80)]


async def test_unusable_records_are_acknowledged_and_left_out(store: Store) -> None:
    wrong = [
        replace(RECORD, sequence=2, requests=-1),
        replace(RECORD, sequence=3, tokens_out=1 << 60),
        replace(RECORD, sequence=4, model="a\0b"),
        replace(RECORD, sequence=5, ended_ms=0),
        replace(RECORD, sequence=6, tokens_cached=11),
    ]
    assert await store.usage_records.put("p", [batch(RECORD, *wrong)]) == (RecordsAck("e", 6),)
    assert await totals(store) == [("vision", 3, 20)]


async def test_records_are_never_changed(store: Store) -> None:
    await store.usage_records.put("p", [batch(RECORD)])
    with pytest.raises(asyncpg.RaiseError, match="never changed"):
        await store.database.fetch("UPDATE usage_records SET requests = 0")
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(
            "INSERT INTO usage_records (source, epoch, sequence, began_at, ended_at, project, username, "
            "key_id, model, requests, tokens_in, tokens_out, tokens_cached) "
            "SELECT 'x', 'x', 1, now(), now(), '', '', '', '', -1, 0, 0, 0"
        )


async def test_usage_is_seen_within_the_scope(store: Store) -> None:
    await store.usage_records.put(
        "p", [batch(RECORD, replace(RECORD, sequence=2, project="speech"))]
    )
    for project in ("vision", "speech"):
        scope = Scope.system("t", Owner("ann", project))
        assert await totals(store, replace(scope, projects=(project,))) == [(project, 3, 20)]
    assert len(await totals(store)) == 2


async def test_usage_is_split_and_paged(store: Store) -> None:
    records = [
        replace(RECORD, sequence=n + 1, model=model, user=user, key_id=f"k-{user}")
        for n, (model, user) in enumerate((m, u) for m in ("a", "b") for u in ("ann", "bob", "cy"))
    ]
    old = earlier(replace(RECORD, sequence=7, model="a"), 49)
    await store.usage_records.put("p", [batch(old, epoch="before"), batch(*records)])

    for _ in range(2):  # as they arrived, and rolled up
        for limit in (1, 2, 500):
            by_both = await split(store, limit=limit, by=["user", "model"])
            assert [(one.model, one.user, one.requests) for one in by_both] == [
                ("a", "ann", 6), ("b", "ann", 3), ("a", "bob", 3), ("b", "bob", 3), ("a", "cy", 3),
                ("b", "cy", 3),
            ]  # fmt: skip
            assert (by_both[0].project, by_both[0].key_id, by_both[0].at) == (None, None, None)

        by_day = await split(store, by=["model"], bucket="day", model="a", limit=1)
        assert [one.requests for one in by_day] == [3, 9]
        assert all(one.at is not None and one.at.hour == 0 for one in by_day)
        assert [one.requests for one in await split(store, by=[], user="bob")] == [6]
        assert [one.requests for one in await split(store, by=[], key="k-cy", model="b")] == [3]
        await compact(store)

    [hours] = await store.database.fetch("SELECT count(*) AS n FROM usage_hours")
    [left] = await store.database.fetch("SELECT count(*) AS n FROM usage_records")
    assert (hours["n"], left["n"]) == (1, 6), "the last day is kept as it came"


@pytest.mark.parametrize("cursor", ["x", "e30", "WyIyMDI2LTAxLTAxIl0", "WyJub3ciXQ"])
async def test_malformed_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        await store.usage_records.page(SYSTEM, NOW, NOW, UsageSplit(), cursor=cursor)


async def test_record_that_comes_again_after_its_roll_up_counts_once(store: Store) -> None:
    old = [earlier(replace(RECORD, sequence=n), 30) for n in (1, 2)]
    await store.usage_records.put("p", [batch(*old)])
    await compact(store)
    assert await totals(store) == [("vision", 6, 40)]
    third = replace(RECORD, sequence=3)
    again = await asyncio.gather(
        store.usage_records.put("p", [batch(*old, third)]),
        store.usage_records.put("p", [batch(*old)]),
    )
    assert again == [(RecordsAck("e", 3),), (RecordsAck("e", 2),)]
    assert await totals(store) == [("vision", 9, 60)]
    await store.usage_records.put("p", [batch(*old, epoch="f")])
    assert await totals(store) == [("vision", 15, 100)], "another run of a worker"
    await compact(store)
    assert await totals(store) == [("vision", 15, 100)]


async def test_roll_up_beside_the_same_record_counts_it_once(store: Store) -> None:
    old = [earlier(replace(RECORD, sequence=n), 30) for n in range(1, 40)]
    await store.usage_records.put("p", [batch(*old)])
    await asyncio.gather(
        compact(store), *(store.usage_records.put("p", [batch(*old)]) for _ in range(5))
    )
    assert await totals(store) == [("vision", 3 * 39, 20 * 39)]


async def test_old_hours_are_deleted(store: Store) -> None:
    await store.usage_records.put("p", [batch(earlier(RECORD, 72), replace(RECORD, sequence=2))])
    await compact(store, 48 * 3600.0)
    assert await totals(store) == [("vision", 3, 20)]


async def test_replica_gives_endpoint_and_group(store: Store) -> None:
    endpoint = EndpointSpec(name="tiny", engine="vllm", model="m", replicas=0)
    made = await store.endpoints.create(SYSTEM, endpoint)
    replica = await store.sessions.create(SYSTEM, endpoint.session("tiny-1"))
    await store.database.fetch(
        "UPDATE sessions SET endpoint_id = $1 WHERE id = $2", made.snapshot.endpoint_id, replica.id
    )
    known = replace(RECORD, session_id=replica.id)
    outside = [replace(RECORD, sequence=n, session_id=one) for n, one in ((2, ""), (3, "openai"))]
    await store.usage_records.put("p", [batch(known, *outside)])
    found = await split(store, by=["endpoint", "session", "resource_group"])
    assert [(one.endpoint, one.session_id, one.resource_group, one.requests) for one in found] == [
        ("", "", "", 6),
        ("tiny", replica.id, "default", 3),
    ]


async def test_only_visible_keys_are_named(store: Store) -> None:
    spec = KeySpec(name="of-ann", user="ann", project="vision")
    key = await store.keys.create(SYSTEM, spec)
    await store.usage_records.put("p", [batch(replace(RECORD, key_id=key.id))])
    member = replace(
        Scope.system("t", Owner("bob", "vision")), projects=("vision",), role=Role.MEMBER
    )
    for scope, name in ((SYSTEM, "of-ann"), (member, None)):
        [one] = await split(store, scope, by=["key"], key="of-ann")
        assert (one.key, one.key_id, one.requests) == (name, key.id, 3)


async def test_limits_and_their_use(store: Store) -> None:
    await store.projects.create(SYSTEM, ProjectSpec(name="vision", tokens_per_minute=900))
    await store.projects.create(SYSTEM, ProjectSpec(name="speech"))
    spec = KeySpec(
        name="k", user="ann", project="vision", requests_per_minute=7, concurrent_requests=0
    )
    key = await store.keys.create(SYSTEM, spec)
    await store.keys.create(SYSTEM, KeySpec(name="free", user="ann", project="vision"))
    limited = {"requests_per_minute": 60}
    for project in ("vision", "speech"):
        owner = Scope.system("t", Owner("ann", project))
        given = {
            "name": f"{project}-m",
            "engine": "vllm",
            "model": "m",
            "replicas": 0,
            "limits": limited,
        }
        await store.endpoints.create(owner, EndpointSpec.model_validate(given))

    for proxy, used in (("a", 3), ("b", 2)):
        await report_use(store, proxy, f"key/{key.id}", used)
        await report_use(store, proxy, "model/vision-m", used)

    def shown(views: list[LimitView]) -> dict[str, tuple[object, ...]]:
        return {
            f"{view.scope}/{view.name}": tuple(
                None if use is None else (use.used, use.limit)
                for use in (
                    view.requests_per_minute,
                    view.tokens_per_minute,
                    view.concurrent_requests,
                )
            )
            for view in views
        }

    of_vision = {
        "key/k": ((5, 7), None, (0, 0)),
        "model/vision-m": ((5, 60), None, None),
        "project/vision": (None, (0, 900), None),
    }
    everything = shown(await store.limit_shares.in_use(SYSTEM))
    assert everything == of_vision | {"model/speech-m": ((0, 60), None, None)}
    scope = replace(
        Scope.system("t", Owner("ann", "vision")), projects=("vision",), role=Role.MEMBER
    )
    assert shown(await store.limit_shares.in_use(scope)) == of_vision
    other = replace(scope, owner=Owner("bob", "vision"))
    assert "key/k" not in shown(await store.limit_shares.in_use(other))
    await store.database.fetch("UPDATE limit_shares SET shares = '{}'")
    assert shown(await store.limit_shares.in_use(scope))["key/k"] == ((0, 7), None, (0, 0))


async def report_use(store: Store, proxy: str, subject: str, used: int) -> None:
    need = LimitNeed(subject, limit_requests=60, used_requests=used, wanted_requests=used)
    await store.limit_shares.change([subject], lambda stored: share_of(need, proxy, stored, 2)[1])


async def test_limits_of_a_model_reach_its_route_and_are_no_revision(store: Store) -> None:
    scope = Scope.system("t", Owner("ann", "vision"))
    given = {"name": "m", "engine": "vllm", "model": "m", "replicas": 0, "max_lifetime_s": 60}
    made = await store.endpoints.create(
        scope, EndpointSpec.model_validate(given | {"limits": {"tokens_per_minute": 5}})
    )
    [route] = (await store.routes.table()).models
    assert route.limits == RequestLimits(tokens_per_minute=5)
    [first] = (await store.endpoints.revisions(scope, "m")).items
    assert first.spec == made.snapshot.spec.template()
    changed = EndpointSpec.model_validate(given | {"limits": {"concurrent_requests": 0}})
    assert await store.endpoints.update(
        scope, made, changed, [], user_labels={}, request="r", idempotency_key=None
    )
    assert len((await store.endpoints.revisions(scope, "m")).items) == 1
    [route] = (await store.routes.table()).models
    assert route.limits == RequestLimits(concurrent_requests=0)


async def test_proxies_together_hold_no_more_than_the_limit(store: Store) -> None:
    await store.projects.create(SYSTEM, ProjectSpec(name="vision"))
    need = LimitNeed("project/vision", limit_requests=100, used_requests=0, wanted_requests=60)
    granted: dict[str, LimitShare] = {}

    async def ask(proxy: str) -> None:
        def decide(stored: StoredShares) -> StoredShares:
            granted[proxy], decided = share_of(need, proxy, stored, 2)
            return decided

        while not await store.limit_shares.change(["project/vision"], decide):
            pass

    await asyncio.gather(*(ask(proxy) for proxy in "abcdef"))
    assert sum(share.requests for share in granted.values()) <= 100
    assert max(share.requests for share in granted.values()) >= 60


async def test_a_proxy_stores_no_more_shares_than_there_are_limits(store: Store) -> None:
    """This holds no matter what the proxy requests. Every row used to be kept permanently."""
    await store.projects.create(SYSTEM, ProjectSpec(name="vision"))
    key = await store.keys.create(SYSTEM, KeySpec(name="k", user="ann", project="vision"))
    for name in ("kept", "gone"):
        given = {"name": name, "engine": "vllm", "model": "m", "replicas": 0}
        await store.endpoints.create(SYSTEM, EndpointSpec.model_validate(given))

    await store.endpoints.delete(SYSTEM, "gone")
    exist = {f"key/{key.id}", "project/vision", "model/kept"}
    spelled = {f"key/{key.id.upper()}", f"key/{key.id.replace('-', '')}", f"key/{{{key.id}}}"}
    longer = {f"{subject}/x" for subject in exist} | {f"{subject}\n" for subject in exist}
    others = {
        "model/gone",
        "key/",
        "key/a",
        "project/",
        "project/x",
        "budget/project/year/tokens/vision",
    }
    for wanted in (exist | spelled | longer | others, {f"project/{n}" for n in range(2000)}):
        needs = {
            subject: LimitNeed(subject, limit_requests=60, wanted_requests=1) for subject in wanted
        }

        def decide(stored: StoredShares, needs: dict[str, LimitNeed] = needs) -> StoredShares:
            return share_of(needs[stored.subject], "p", stored, 1)[1]

        assert set(await store.limit_shares.change(sorted(wanted), decide)) == wanted & exist

    rows = await store.database.fetch("SELECT subject FROM limit_shares")
    assert {row["subject"] for row in rows} == exist


async def test_shares_that_ended_an_hour_ago_are_deleted(
    migrated_database: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares that a proxy requests at the same time are not deleted."""
    monkeypatch.setattr(retention, "BATCH", 2)
    names = ["a", "b", "c", "d"]
    for name in names:
        await store.projects.create(SYSTEM, ProjectSpec(name=name))
        for proxy in ("p1", "p2"):
            await report_use(store, proxy, f"project/{name}", 1)

    assert await store.retention.delete_limit_shares() == 0
    for name in names:
        for proxy in ("p1", "p2"):
            await end_share(
                store, f"project/{name}", proxy, 59 if (name, proxy) == ("d", "p2") else 61
            )

    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("SELECT FROM limit_shares WHERE subject = 'project/a' FOR UPDATE")
        assert [await store.retention.delete_limit_shares() for _ in range(2)] == [2, 0]

    await other.close()
    assert [await store.retention.delete_limit_shares() for _ in range(2)] == [1, 0]
    rows = await store.database.fetch("SELECT subject FROM limit_shares")
    assert [row["subject"] for row in rows] == ["project/d"]
    await report_use(store, "p1", "project/a", 1)
    [row] = await store.database.fetch(
        "SELECT revision FROM limit_shares WHERE subject = 'project/a'"
    )
    assert row["revision"] == 1


async def end_share(store: Store, subject: str, proxy: str, minutes_ago: int) -> None:
    await store.database.fetch(
        "UPDATE limit_shares SET shares = jsonb_set(shares, ARRAY[$2, 'until'], to_jsonb("
        "extract(epoch FROM now() - make_interval(mins => $3)))) WHERE subject = $1",
        subject,
        proxy,
        minutes_ago,
    )


async def test_grants_have_their_limits_and_priority(store: Store) -> None:
    await store.projects.create(SYSTEM, ProjectSpec(name="vision", max_priority=20))
    patch = ProjectPatch(max_priority=20, tokens_per_minute=1000)
    view = await store.projects.update(SYSTEM, "vision", patch)
    assert (view.tokens_per_minute, view.requests_per_minute) == (1000, None)
    spec = KeySpec(name="k", user="ann", project="vision", max_priority=40, requests_per_minute=7)
    made = await store.keys.create(SYSTEM, spec)
    table = await store.routes.credentials()
    (grant,) = table.keys
    assert (grant.id, grant.owner, grant.priority) == (made.id, "ann", 20)
    assert grant.limits == RequestLimits(requests_per_minute=7)
    assert [(one.name, one.limits) for one in table.projects] == [
        ("vision", RequestLimits(tokens_per_minute=1000))
    ]
