"""Load of endpoints, nodes and devices over time in Postgres: samples form spans, counters that
cannot be attributed to a time are left out, and callers read only what they may see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.link.proxy_messages import LoadReport, ModelLoad
from moorage.common.model.ids import AgentId, DeviceId
from moorage.common.model.resource_usage import DeviceUse, UsageReport
from moorage.common.views.load import AgentLoad, DeviceLoad, EndpointLoad, LoadStep
from moorage.common.views.resources import GroupOptions
from moorage.manager.api.metering.load import LoadQuery, choose_step, window_of
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import GarbageCollector, Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.endpoints.load_history import LoadWindow
from tests.clocks import StoreClock

from .conftest import FakeAgent
from .tenancy_harness import serve
from .test_loads import Loaded, scaled
from .test_rollouts import complete, spec

SYSTEM = Scope.system("t", Owner("ann", "vision"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GIB = 1024**3


def days() -> LoadWindow:
    """In days, so that no test depends on the minute in which it runs."""
    until = datetime.now(UTC) + timedelta(days=2)
    return LoadWindow("day", 86_400, 86_400, since=EPOCH, until=until)


async def term_of(store: Store) -> int:
    await store.database.fetch("DELETE FROM leases")
    term = await store.leases.acquire("test", 3600.0)
    assert term is not None
    return term


async def of_endpoint(store: Store) -> EndpointLoad:
    found = await store.load_history.of_endpoint(SYSTEM, "m", days())
    if len(found.at) > 1:
        pytest.skip("midnight passed during the test")
    return found


async def of_agent(store: Store, agent: str = "node-1") -> AgentLoad:
    found = await store.load_history.of_agent(agent, days())
    if len(found.at) > 1:
        pytest.skip("midnight passed during the test")
    return found


def used(*devices: DeviceUse, agent: str = "node-1", cpu: int = 0) -> UsageReport:
    return UsageReport(AgentId(agent), "incarnation-1", cpu, 2 * GIB, devices=devices)


def gpu(name: str, busy: int | None, **more: int) -> DeviceUse:
    return DeviceUse(DeviceId(name), more.pop("memory", 0), gpu=busy, **more)


class Proxy:
    """A proxy that reports its counters for model m."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.incarnation = "run-1"

    async def connect(self, **counts: int) -> None:
        """The first report of a link is whole."""
        await self._report(whole=True, **counts)

    async def report(self, **counts: int) -> None:
        await self._report(whole=False, **counts)

    async def _report(self, *, whole: bool, **counts: int) -> None:
        models = (ModelLoad("m", **counts),) if counts else ()
        report = LoadReport("p1", self.incarnation, 1, models, whole=whole)
        assert not await self.store.loads.put([report])


@pytest.fixture
async def platform(store: Store) -> Loaded:
    made = Loaded(store)
    await made.agent.report()
    return made


async def sampled(store: Store) -> None:
    await store.load_history.record(await term_of(store))


async def test_traffic_queue_and_replicas_of_an_endpoint(platform: Loaded) -> None:
    store = platform.store
    await platform.create(**scaled(min=2))
    await platform.until(complete)
    proxy = Proxy(store)
    await proxy.connect()
    await sampled(store)
    await proxy.report(
        requests=7, errors=2, tokens_in=70, tokens_out=30, first_token_ms=100, waiting=1
    )
    await platform.engines(running=3, waiting=2)
    await sampled(store)
    await proxy.report(
        requests=9, errors=2, tokens_in=90, tokens_out=40, first_token_ms=300, waiting=3
    )
    await sampled(store)
    found = await of_endpoint(store)

    assert (found.requests, found.errors) == ([9], [2])
    assert (found.tokens_in, found.tokens_out) == ([90], [40])
    assert (found.first_token_ms, found.first_token_peak_ms) == ([200.0], [300])
    assert found.held == pytest.approx([4 / 3])
    assert (found.running, found.waiting) == (pytest.approx([4.0]), pytest.approx([8 / 3]))
    assert (found.wanted, found.ready) == ([2.0], [2.0])
    [covered] = found.covered_s
    assert 0 < covered < 60, "from the first sample to the last"


async def test_a_clock_that_is_set_back_covers_no_time(platform: Loaded) -> None:
    """The previous sample then lies in the future."""
    store = platform.store
    await platform.create(replicas=0)
    proxy = Proxy(store)
    await proxy.connect()
    await sampled(store)
    await store.database.fetch("UPDATE load_samples SET at = at + interval '10 minutes'")
    await proxy.report(requests=5, errors=1)
    await sampled(store)
    found = await of_endpoint(store)
    assert (found.covered_s, found.requests) == ([0.0], [0])


async def test_requests_count_once_and_restarts_begin_at_zero(platform: Loaded) -> None:
    store = platform.store
    await platform.create(replicas=0)
    proxy = Proxy(store)
    await proxy.connect()
    await sampled(store)
    await proxy.report(requests=5, errors=1)
    await sampled(store)
    await sampled(store)
    assert (await of_endpoint(store)).requests == [5]

    await proxy.report(requests=2, errors=0)  # the endpoint was deleted and created again
    await sampled(store)
    assert ((found := await of_endpoint(store)).requests, found.errors) == ([7], [1])
    await proxy.connect(requests=4)  # another link of the same process, at once
    await sampled(store)
    assert (await of_endpoint(store)).requests == [9]


async def test_requests_of_unknown_time_are_not_counted(platform: Loaded) -> None:
    """Otherwise, requests of hours would appear as those of a minute."""
    store = platform.store
    await platform.create(replicas=0)
    proxy = Proxy(store)
    await proxy.connect(requests=10_000)  # it served without a manager
    await sampled(store)
    await sampled(store)
    assert (await of_endpoint(store)).requests == [0]

    await proxy.report(requests=10_001)
    await sampled(store)
    assert (await of_endpoint(store)).requests == [1]
    await store.database.fetch("UPDATE proxy_reports SET at = at - interval '2 minutes'")
    await proxy.connect(requests=30_000)
    await sampled(store)
    assert (await of_endpoint(store)).requests == [1], "its link was cut"

    await proxy.report(requests=60_000)
    await store.database.fetch("UPDATE load_samples SET at = at - interval '10 minutes'")
    await sampled(store)
    assert (await of_endpoint(store)).requests == [1], "nobody took samples"
    await proxy.report(requests=60_002)
    await sampled(store)
    assert (await of_endpoint(store)).requests == [3]


async def test_means_of_a_node_and_its_devices(store: Store) -> None:
    await FakeAgent(store).report()
    first = gpu("GPU-0", 200, memory=4 * GIB, temperature=40, power=100_000)
    await store.usage.put([used(first, gpu("GPU-1", None), cpu=1000)])
    await sampled(store)
    second = gpu("GPU-0", 800, memory=284 * GIB, temperature=60, power=300_000)
    await store.usage.put([used(second, gpu("GPU-2", 5000), cpu=3000)])
    await sampled(store)

    found = await of_agent(store)
    assert (found.cpu, found.memory) == ([2000.0], [2.0 * GIB])
    assert [device.model_copy(update={"at": []}) for device in found.devices] == [
        DeviceLoad(
            device_id="GPU-0",
            gpu=[500.0],
            memory=[144.0 * GIB],
            temperature=[50.0],
            power=[200_000.0],
        ),
        DeviceLoad(device_id="GPU-1", gpu=[None], memory=[0.0], temperature=[None], power=[None]),
        DeviceLoad(device_id="GPU-2", gpu=[1000.0], memory=[0], temperature=[None], power=[None]),
    ]


async def test_a_silent_node_has_a_gap(store: Store) -> None:
    await FakeAgent(store).report()
    await store.usage.put([used()])
    await store.database.fetch("UPDATE agent_usage SET at = at - interval '121 s'")
    await sampled(store)
    assert (await of_agent(store)).at == []


async def test_minutes_are_merged_into_longer_steps(store: Store) -> None:
    await FakeAgent(store).report()
    await store.database.fetch(
        "INSERT INTO agent_load_spans SELECT 'node-1', 60, '2026-11-01 00:00Z'::timestamptz "
        "+ n * interval '1 minute', n + 1, n, 0, '{a}', ARRAY[n + 1], ARRAY[n], '{1}', '{2}', "
        "'{NULL}' FROM generate_series(0, 5) n"
    )
    since = datetime(2026, 11, 1, tzinfo=UTC)
    window = LoadWindow("5-minutes", 60, 300, since=since, until=since + timedelta(hours=1))
    found = await store.load_history.of_agent("node-1", window)
    assert found.at == [since.timestamp(), since.timestamp() + 300]
    assert found.cpu == pytest.approx([(0 + 2 + 6 + 12 + 20) / 15, 5])
    assert found.devices[0].gpu == found.cpu, "weighted by the samples"
    assert found.devices[0].power == [None, None]


async def test_a_former_leader_records_nothing(store: Store) -> None:
    term = await term_of(store)
    await FakeAgent(store).report()
    await store.usage.put([used()])
    await store.endpoints.create(SYSTEM, spec())
    await store.leases.release("test", term)
    await store.load_history.record(term)
    for table in ("endpoint_load_spans", "agent_load_spans", "load_samples"):
        assert not await store.database.fetch(f"SELECT FROM {table}"), table


async def test_the_leaders_housekeeping_records(store: Store, clock: StoreClock) -> None:
    await FakeAgent(store).report()
    await store.usage.put([used()])
    async with Leader(store, clock) as leader:
        collector = GarbageCollector(store, leader, ManagerMetrics(), clock)
        for _ in range(2):
            await collector.run_once()
    rows = await store.database.fetch(
        "SELECT seconds, sum(samples) AS n FROM agent_load_spans GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [(60, 1), (3600, 1), (86_400, 1)]


YEAR = """
WITH times AS (
    SELECT 60 AS seconds, date_bin('1 minute', now(), 'epoch') - n * interval '1 minute' AS at
    FROM generate_series(1, 4000) n
    UNION ALL SELECT 3600, date_bin('1 hour', now(), 'epoch') - n * interval '1 hour'
    FROM generate_series(1, 4000) n
    UNION ALL SELECT 86400, date_bin('1 day', now(), 'epoch') - n * interval '1 day'
    FROM generate_series(1, 4000) n
), nodes AS (
    INSERT INTO agent_load_spans
    SELECT id, seconds, at, 2, 1, 1, '{a}', '{2}', '{1}', '{1}', '{1}', '{1}' FROM times, agents
)
INSERT INTO endpoint_load_spans
SELECT e.id, seconds, at, 2, 60, 1, 0, 1, 1, 0, NULL, NULL, 0, 0, 0, 1, 1 FROM times, endpoints e
"""


async def test_each_length_of_span_has_its_retention(store: Store) -> None:
    await FakeAgent(store).report()
    await store.endpoints.create(SYSTEM, spec())
    await store.database.fetch(YEAR)
    while await store.load_history.delete_old():
        pass

    for table in ("endpoint_load_spans", "agent_load_spans"):
        rows = await store.database.fetch(
            f"SELECT seconds, count(*) AS n FROM {table} GROUP BY 1 ORDER BY 1"
        )
        kept = {row["seconds"]: row["n"] for row in rows}
        assert 2878 <= kept[60] <= 2880, "two days"
        assert 2158 <= kept[3600] <= 2160, "ninety days"
        assert 3648 <= kept[86_400] <= 3650, "ten years"


@pytest.mark.parametrize("name", ["endpoint_load", "agent_load", "agent_devices_load"])
async def test_a_window_is_read_by_its_index(store: Store, name: str) -> None:
    """The amount read depends on the window, no matter how long the history is."""
    for number in range(10):
        await FakeAgent(store, name=f"node-{number}").report()
        await store.endpoints.create(SYSTEM, spec(name=f"m{number}"))
    await store.database.fetch(YEAR)
    await store.database.fetch("ANALYZE endpoint_load_spans, agent_load_spans")
    [endpoint] = await store.database.fetch("SELECT id FROM endpoints WHERE name = 'm1'")
    of = endpoint["id"] if name == "endpoint_load" else "node-1"
    until = datetime.now(UTC)
    rows = await store.database.fetch(
        "EXPLAIN (ANALYZE, FORMAT JSON) " + SQL[name],
        *(of, 3600, 3600, until - timedelta(days=1), until),
    )
    plan = rows[0][0] if isinstance(rows[0][0], list) else json.loads(rows[0][0])
    text = json.dumps(plan)
    assert "load_spans_pkey" in text
    assert '"Rows Removed by Filter"' not in text


IMPOSSIBLE = {
    "a span that begins between two": "'2026-11-01 00:00:01Z', 1, 60, 0, 0, NULL",
    "no sample": "'2026-11-01 00:00Z', 0, 60, 0, 0, NULL",
    "a negative number of requests": "'2026-11-01 00:00Z', 1, 60, -1, 0, NULL",
    "requests in no time": "'2026-11-01 00:00Z', 1, 0, 1, 0, NULL",
    "more first tokens than samples": "'2026-11-01 00:00Z', 1, 60, 0, 2, 1",
    "a time of no first token": "'2026-11-01 00:00Z', 1, 60, 0, 0, 1",
}


@pytest.mark.parametrize("values", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_impossible_load_of_an_endpoint_is_refused(store: Store, values: str) -> None:
    await store.endpoints.create(SYSTEM, spec())
    at, samples, covered, requests, first_tokens, first_token = values.split(", ")
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(
            f"INSERT INTO endpoint_load_spans SELECT id, 60, {at}, {samples}, {covered}, "
            f"{requests}, 0, 0, 0, {first_tokens}, {first_token}, {first_token}, 0, 0, 0, 1, 1 "
            "FROM endpoints"
        )


async def test_a_device_without_a_value_is_refused(store: Store) -> None:
    await FakeAgent(store).report()
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(
            "INSERT INTO agent_load_spans VALUES ('node-1', 60, '2026-11-01 00:00Z', 1, 0, 0, "
            "'{a,b}', '{1,1}', '{1}', '{1,1}', '{1,1}', '{1,1}')"
        )


async def test_callers_read_the_load_that_they_may_see(store: Store) -> None:
    """An endpoint that is not shared is seen by its project only, a node by those who may use its
    group."""
    await store.groups.put("lab", GroupOptions(projects=["vision"]), actor="root")
    await FakeAgent(store, name="lab-1", group="lab").report()
    await FakeAgent(store).report()
    await store.endpoints.create(SYSTEM, spec(), shared_with=[])
    await sampled(store)
    async with serve(store) as api:
        for caller, seen in (("ann", True), ("mate", True), ("bob", False), ("auditor", True)):
            for path in (
                "/v1/endpoints/m/load",
                "/v1/agents/lab-1/load",
                "/v1/agents/lab-1/stats",
            ):
                status, text = await api.call(caller, "GET", path)
                assert status == (200 if seen else 404), (caller, path, text)

            assert (await api.call(caller, "GET", "/v1/agents/node-1/load"))[0] == 200
            status, text = await api.call(caller, "GET", "/v1/stats/agents")
            assert (status, "lab-1" in text, "node-1" in text) == (200, seen, True), (caller, text)

        for query in ("?from=2026-01-01T00:00:00Z&step=minute", "?step=week"):
            status, text = await api.call("ann", "GET", "/v1/endpoints/m/load" + query)
            assert status == 422, text


@pytest.mark.parametrize(
    ("hours", "ago_days", "step"),
    [
        (1, 0, "minute"),
        (6, 0, "minute"),
        (24, 0, "5-minutes"),
        (1, 3, "hour"),
        (24 * 7, 0, "hour"),
        (24 * 30, 0, "hour"),
        (24 * 60, 0, "day"),
        (24, 100, "day"),
    ],
)
def test_default_step(hours: int, ago_days: int, step: LoadStep) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    until = now - timedelta(days=ago_days)
    assert choose_step(until - timedelta(hours=hours), until, now) == step


def test_the_first_step_contains_the_start() -> None:
    now = datetime(2026, 11, 22, 12, 34, 56, tzinfo=UTC)
    found = window_of(LoadQuery.model_validate({"step": "5-minutes"}), now)
    assert (found.since, found.until) == (datetime(2026, 11, 22, 11, 30, tzinfo=UTC), now)


SIZES: Sequence[tuple[int, int]] = [(300, 8)]


@pytest.mark.parametrize(("nodes", "gpus"), SIZES)
async def test_a_sample_of_a_large_installation_is_one_row_per_node(
    store: Store, nodes: int, gpus: int
) -> None:
    """Three upserts for each node and sample, however many devices it has."""
    names = [f"node-{number}" for number in range(nodes)]
    for name in names:
        await FakeAgent(store, name=name, gpus=0).report()
    devices = [gpu(f"GPU-{n}", 500, temperature=50, power=300_000) for n in range(gpus)]
    await store.usage.put([used(*devices, agent=name) for name in names])
    for _ in range(2):
        await sampled(store)
    [row] = await store.database.fetch(
        "SELECT count(*) AS n, sum(cardinality(devices)) AS devices FROM agent_load_spans "
        "WHERE seconds = 86400"
    )
    if row["n"] > nodes:
        pytest.skip("midnight passed between the two samples")
    assert (row["n"], row["devices"]) == (nodes, nodes * gpus)
