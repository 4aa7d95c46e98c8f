"""Endpoint load in Postgres, and its effects: wake, idle, autoscaling, drains, health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.link.pb import routes_pb2
from moorage.common.link.proxy_messages import (
    EngineRequests,
    LoadReport,
    ModelLoad,
    ProxyReply,
    ReplicaLoad,
)
from moorage.common.link.route_codec import reply_from_wire
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.resource_usage import EngineUse, UsageReport
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus, ObservedState, Status
from moorage.common.views.endpoints import EndpointView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import UsageWriter
from moorage.manager.loops.autoscaler import Autoscaler
from moorage.manager.loops.load_writer import LoadWriter
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.peer_addresses import PeerAddresses
from moorage.manager.rpc.proxy_links import ProxyLinks
from moorage.manager.serving.snapshots import AutoscaleDecision
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import RUNNING, open_store
from .test_rollouts import Platform, complete, spec

SYSTEM = Scope.system("t", Owner("ann", "vision"))


class Loaded(Platform):
    """With an autoscaler, and one proxy that reports."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.metrics = ManagerMetrics()
        self.autoscaler = Autoscaler(store, self.leader, self.metrics, self.clock)
        self.writer = LoadWriter(store, self.clock)
        self.usage = UsageWriter(store, self.metrics, self.clock)

    async def report(self, *, proxy: str = "p1", generation: int = 1 << 50, **load: Any) -> None:
        """Of model m."""
        replicas = tuple(ReplicaLoad(SessionId(k), n) for k, n in load.pop("replicas", {}).items())
        replicas += load.pop("results", ())
        made = ModelLoad("m", replicas=replicas, **load)
        self.writer.record_load(LoadReport(proxy, "run-1", generation, (made,), whole=True))
        await self.writer.run_once()

    async def engines(self, running: int, waiting: int, kv_cache: int | None = None) -> None:
        """Of every replica."""
        kernels = [k for k, seen in self.agent.seen.items() if seen.state is ObservedState.RUNNING]
        uses = tuple(EngineUse(k, running, waiting, kv_cache) for k in kernels)
        self.usage.take(UsageReport(AgentId("node-1"), "incarnation-1", 0, 0, engines=uses))
        await self.usage.run_once()

    async def scale(self) -> EndpointView:
        """Run the autoscaler once, and then the replica controller."""
        await self.store.database.fetch("DELETE FROM leases")
        await self.leader.run_once()
        await self.autoscaler.run_once()
        return await self.run()

    async def age(self, seconds: float) -> None:
        """Act as if this much time had passed, by moving every event so far to an earlier time."""
        for table, columns in (
            ("endpoints", ("changed_at", "scaled_at", "created_at")),
            ("sessions", ("ready_at", "created_at", "draining_since", "status_since")),
            ("model_loads", ("active_at",)),
        ):
            moved = ", ".join(f"{c} = {c} - make_interval(secs => $1)" for c in columns)
            await self.store.database.fetch(f"UPDATE {table} SET {moved}", seconds)

        # the heartbeat continues
        await self.store.database.fetch("UPDATE proxy_reports SET at = now()")
        # The autoscaler checks at once, however long the test has taken.
        await self.store.database.fetch("UPDATE model_loads SET changed_at = now()")


@pytest.fixture
async def platform(store: Store) -> Loaded:
    made = Loaded(store)
    await made.agent.report()
    return made


def scaled(**policy: object) -> dict[str, object]:
    return {"autoscale": {"min": 1, "max": 4} | policy, "resources": {"cpu": "0.5"}}


async def test_idle_endpoint_sleeps_and_wakes(platform: Loaded) -> None:
    await platform.create(**scaled(min=0, idle_timeout_s=60))
    await platform.report(requests=1)
    [ready] = (await platform.until(complete))[-1:]
    assert (ready.status, ready.replicas, ready.ready) == (EndpointStatus.READY, 2, 2)
    await platform.age(10)
    assert (await platform.scale()).replicas == 2
    await platform.age(61)
    view = await platform.scale()
    assert (view.replicas, {r.state for r in view.sessions}) == (0, {"draining"})
    assert view.status is EndpointStatus.NOT_LOADED
    asleep = (await platform.until(lambda view: not any(r.state for r in view.sessions)))[-1]
    assert {r.reason for r in asleep.sessions} == {Reason.SCALED_DOWN}
    await platform.report(requests=1, waiting=3)
    assert (await platform.scale()).replicas == 1
    await platform.report(requests=4)
    woken = await platform.scale()
    assert (woken.ready, woken.status) == (1, EndpointStatus.READY)
    decisions = (await platform.service.decisions(SYSTEM, "m")).items
    assert [(d.from_replicas, d.to_replicas, d.rule) for d in decisions] == [
        (0, 1, "wake"),
        (2, 0, "idle"),
    ]
    assert decisions[0].inputs["held"] == 3
    assert decisions[1].inputs["idle_s"] >= 60


async def test_routes_say_what_requests_may_wait_for(platform: Loaded) -> None:
    async def route() -> tuple[bool, str, bool]:
        [one] = (await platform.store.routes.table()).models
        return one.holds, one.status, one.expected_s > 0

    await platform.create(replicas=1)
    assert await route() == (True, "queued", False)
    await platform.until(complete)
    assert await route() == (True, "ready", True)
    await platform.service.scale(SYSTEM, "m", 2)
    assert await route() == (True, "degraded", True)
    await platform.service.scale(SYSTEM, "m", 0)
    await platform.run()
    assert await route() == (False, "not_loaded", True), "nothing wakes it"
    await platform.update({"autoscale": {"min": 0, "max": 2}})
    assert await route() == (True, "not_loaded", True), "a request wakes it"


async def test_nothing_sleeps_that_no_proxy_reports(platform: Loaded) -> None:
    await platform.create(**scaled(min=0, idle_timeout_s=60))
    await platform.until(complete)
    await platform.age(3600)
    assert (await platform.scale()).replicas == 2
    await platform.report(requests=0, idle_s=3600)
    await platform.store.database.fetch("UPDATE proxy_reports SET at = now() - interval '1 minute'")
    assert (await platform.scale()).replicas == 2, "the proxy is silent, not idle"


async def test_scaling_by_waiting_requests_and_back(platform: Loaded) -> None:
    await platform.create(**scaled(waiting=2, down_delay_s=60), replicas=1)
    await platform.until(complete)
    await platform.engines(4, 5, 900)
    view = await platform.service.get(SYSTEM, "m")
    assert (view.status, view.running, view.waiting, view.kv_cache) == (
        EndpointStatus.BUSY,
        4,
        5,
        0.9,
    )
    await platform.age(20)
    view = await platform.scale()
    assert view.replicas == 3
    [decision] = (await platform.service.decisions(SYSTEM, "m")).items
    assert (decision.rule, decision.detail) == ("waiting", "waiting 5 per replica, target 2")
    assert (decision.inputs["running"], decision.inputs["kv_cache"]) == (4, 0.9)
    assert b'moorage_endpoint_scalings_total{rule="waiting"} 1.0' in platform.metrics.render()
    await platform.until(lambda view: view.ready == 3)
    await platform.engines(2, 0, 0)
    for _ in range(3):
        assert (await platform.scale()).replicas == 3, "not at once"

    [endpoint_id] = await platform.store.loads.autoscaled(SYSTEM)
    [endpoint] = await platform.store.loads.of_endpoints(SYSTEM, [endpoint_id])
    assert (endpoint.load.running, endpoint.scaling.full_at) == (6, 4)


async def test_user_change_voids_a_decision(platform: Loaded) -> None:
    await platform.create(**scaled(waiting=2), replicas=1)
    [endpoint_id] = await platform.store.loads.autoscaled(SYSTEM)
    [endpoint] = await platform.store.loads.of_endpoints(SYSTEM, [endpoint_id])
    await platform.update({"priority": 5})
    await platform.store.database.fetch("DELETE FROM leases")
    term = await platform.store.leases.acquire("t", 60)
    assert term is not None
    made = AutoscaleDecision(2, "waiting", "x")
    assert not await platform.store.loads.scale(SYSTEM, endpoint, made, {}, term=term)
    [endpoint] = await platform.store.loads.of_endpoints(SYSTEM, [endpoint_id])
    assert not await platform.store.loads.scale(
        SYSTEM, endpoint, AutoscaleDecision(5, "waiting", "x"), {}, term=term
    )
    assert not await platform.store.loads.scale(SYSTEM, endpoint, made, {}, term=term - 1)
    assert await platform.store.loads.scale(SYSTEM, endpoint, made, {}, term=term)
    view = await platform.service.get(SYSTEM, "m")
    assert (view.replicas, view.version) == (2, 2), "a decision changes no ETag"


async def test_drain_waits_for_the_last_request(platform: Loaded) -> None:
    await platform.create()
    view = (await platform.until(complete))[-1]
    one, two = (r.session_id for r in view.sessions)
    await platform.report(in_flight=3, requests=9, replicas={one: 1, two: 2})
    await platform.service.scale(SYSTEM, "m", 1)
    view = await platform.run()
    assert next(r.session_id for r in view.sessions if r.state == "draining") == one, (
        "the least loaded"
    )
    await platform.age(30)
    assert "draining" in [r.state for r in (await platform.run()).sessions]
    await platform.store.database.fetch(
        "UPDATE sessions SET draining_since = now() WHERE drain_reason <> ''"
    )
    await platform.report(in_flight=2, requests=9, replicas={two: 2}, generation=1)
    assert "draining" in [r.state for r in (await platform.run()).sessions], (
        "the proxy picks by older routes, and may send another request there"
    )
    await platform.report(in_flight=2, requests=9, replicas={two: 2})
    view = await platform.run()
    assert [r.session_id for r in view.sessions if r.state == "draining"] == []


async def test_unhealthy_replica_is_replaced(platform: Loaded) -> None:
    await platform.create(replicas=1)
    view = (await platform.until(complete))[-1]
    [kernel] = platform.agent.seen
    platform.agent.see(kernel, ObservedState.RUNNING, unhealthy="3 health checks failed", **RUNNING)
    await platform.agent.report()
    view = await platform.service.get(SYSTEM, "m")
    assert (view.ready, view.status, view.sessions[0].state) == (
        0,
        EndpointStatus.LOADING,
        "loading",
    )
    assert view.sessions[0].unhealthy == "3 health checks failed"
    [route] = (await platform.store.routes.table()).models
    assert [(one.session_id, one.draining) for one in route.targets] == [
        (view.sessions[0].session_id, False)
    ], "the last one stays, marked"
    platform.agent.see(kernel, ObservedState.RUNNING, unhealthy="", **RUNNING)
    await platform.agent.report()
    assert (await platform.service.get(SYSTEM, "m")).ready == 1, "it has recovered"
    platform.agent.see(kernel, ObservedState.RUNNING, unhealthy="again", **RUNNING)
    await platform.agent.report()
    await platform.leader.run_once()
    await platform.controller.run_once()
    view = await platform.service.get(SYSTEM, "m")
    assert sorted(r.state for r in view.sessions) == ["loading", "queued"], (
        "its replacement starts first"
    )
    await platform.store.database.fetch(
        "UPDATE kernels SET unhealthy_since = now() - interval '200 s'"
    )
    await platform.run()
    ended = [
        r for r in (await platform.service.get(SYSTEM, "m")).sessions if r.status is Status.ERROR
    ]
    assert [r.reason for r in ended] == [Reason.UNHEALTHY]


async def test_only_the_last_replicas_get_requests_while_they_are_unhealthy(
    platform: Loaded,
) -> None:
    await platform.create(replicas=2)
    await platform.until(complete)
    one, other = platform.agent.seen

    async def routed(**unhealthy: str) -> list[str]:
        for kernel, name in ((one, "one"), (other, "other")):
            platform.agent.see(
                kernel, ObservedState.RUNNING, unhealthy=unhealthy.get(name, ""), **RUNNING
            )
        await platform.agent.report()
        [route] = (await platform.store.routes.table()).models
        return sorted(target.kernel_id for target in route.targets)

    assert await routed(one="3 health checks failed") == [other]
    assert await routed(one="3 health checks failed", other="3 health checks failed") == sorted(
        (one, other)
    )
    assert await routed(other="3 health checks failed") == [one]


async def test_replica_that_fails_everybody_is_marked_and_replaced(platform: Loaded) -> None:
    await platform.create(replicas=1)
    view = (await platform.until(complete))[-1]
    replica = view.sessions[0].session_id
    fails = (ReplicaLoad(SessionId(replica), 0, failing_s=7.0),)
    answers = (ReplicaLoad(SessionId(replica), 0, answers=True),)

    async def said() -> tuple[EndpointStatus, int, str]:
        view = await platform.service.get(SYSTEM, "m")
        found = next(one for one in view.sessions if one.session_id == replica)
        assert (found.unhealthy != "") is (found.state == EndpointStatus.DEGRADED)
        return view.status, view.ready, found.state

    await platform.report(requests=2, results=fails)
    assert await said() == (EndpointStatus.DEGRADED, 0, "degraded")
    await platform.report(proxy="p2", requests=2, results=answers)
    assert await said() == (EndpointStatus.READY, 1, "ready"), "one of them reaches it"
    await platform.store.database.fetch(
        "UPDATE model_loads SET changed_at = now() - interval '16 s' WHERE proxy_id = 'p2'"
    )
    assert (await said())[1] == 0, "it did, a while ago"
    [route] = (await platform.store.routes.table()).models
    assert [target.draining for target in route.targets] == [False], "the last one stays"
    await platform.leader.run_once()
    await platform.controller.run_once()
    assert len((await platform.service.get(SYSTEM, "m")).sessions) == 2, (
        "its replacement starts first"
    )
    await platform.report(requests=3, results=answers)
    assert (await said())[1] == 1, "it has recovered"


async def test_replica_out_of_reach_is_kept_for_its_time(platform: Loaded) -> None:
    await platform.create(replicas=1)
    await platform.until(complete)
    [kernel], now = platform.agent.seen, datetime.now(UTC).timestamp()

    async def tell(kept_until: float) -> int:
        seen = (
            {"unhealthy": "no tunnel", "kept_until": kept_until}
            if kept_until
            else {"unhealthy": ""}
        )
        platform.agent.see(kernel, ObservedState.RUNNING, **seen, **RUNNING)
        await platform.agent.report()
        await platform.leader.run_once()
        await platform.controller.run_once()
        view = await platform.service.get(SYSTEM, "m")
        assert view.ready == int(not kept_until)
        assert any(one.unhealthy for one in view.sessions) is bool(kept_until)
        [route] = (await platform.store.routes.table()).models
        assert len(route.targets) == int(not kept_until), (
            "requests are held until there is a way again"
        )

        return len(view.sessions)

    assert await tell(now + 86_400) == 1, "no second one"
    assert await tell(0) == 1, "it was reached again"
    assert await tell(now + 86_400) == 1
    assert await tell(now - 86_400) == 2, "its time is over"


async def test_unhealthy_replica_that_drains_stays_for_its_requests(platform: Loaded) -> None:
    await platform.create(replicas=1)
    view = (await platform.until(complete))[-1]
    [kernel], replica = platform.agent.seen, view.sessions[0].session_id
    await platform.report(in_flight=1, requests=1, replicas={replica: 1})
    platform.agent.see(kernel, ObservedState.RUNNING, unhealthy="3 health checks failed", **RUNNING)
    await platform.agent.report()
    await platform.until(lambda view: any(r.state == "draining" for r in view.sessions))
    [route] = (await platform.store.routes.table()).models
    assert [(t.session_id, t.draining) for t in route.targets if t.session_id == replica] == [
        (replica, True)
    ]
    await platform.report(in_flight=1, requests=1, replicas={replica: 1})
    view = await platform.run()
    assert [r.session_id for r in view.sessions if r.state == "draining"] == [replica]


async def test_routes_tell_the_smallest_context_of_the_replicas(platform: Loaded) -> None:
    await platform.create(replicas=2)
    await platform.until(complete)
    routes = platform.store.routes
    told: list[int] = []
    for sizes in ((None, 4096), (2048, 4096), (2048, 4096), (8192, None)):
        uses = [
            (AgentId("node-1"), EngineUse(kernel, 1, 0, None, size))
            for kernel, size in zip(platform.agent.seen, sizes, strict=True)
        ]
        await platform.store.loads.put_engines(uses)
        [route] = (await routes.table()).models
        told.append(route.max_model_len)

    assert told == [4096, 2048, 2048, 8192]


async def test_changed_loads_of_engines_reach_the_proxies(platform: Loaded) -> None:
    await platform.create(replicas=2)
    await platform.until(complete)
    first, second = platform.agent.seen
    loads = platform.store.loads

    async def put(*uses: EngineUse) -> None:
        await loads.put_engines([(AgentId("node-1"), use) for use in uses])

    await put(EngineUse(first, 3, 1, 250), EngineUse(second, 0, 0))
    found, since = await loads.engines_changed(datetime(1970, 1, 1, tzinfo=UTC))
    assert set(found) == {EngineRequests(first, 3, 1, 250), EngineRequests(second, 0, 0)}
    await put(EngineUse(first, 4, 1, 250), EngineUse(second, 0, 0))
    found, _ = await loads.engines_changed(since)
    assert EngineRequests(first, 4, 1, 250) in found
    later = since + timedelta(days=1)
    assert (await loads.engines_changed(later))[0] == ()


class Call:
    """A proxy's call, with its replies."""

    def __init__(self) -> None:
        self.replies: list[ProxyReply] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, message: routes_pb2.ProxyReply) -> None:
        self.replies.append(reply_from_wire(message))


async def test_each_proxy_gets_all_loads_of_engines_at_first(platform: Loaded) -> None:
    await platform.create(replicas=1)
    await platform.until(complete)
    await platform.engines(3, 1, 250)
    store = platform.store
    links = ProxyLinks(
        store.usage_records,
        store.limit_shares,
        platform.clock,
        PeerAddresses(),
        engines_changed=store.loads.engines_changed,
    )

    async def reports() -> AsyncIterator[routes_pb2.ProxyReport]:
        for _ in range(2):
            yield routes_pb2.ProxyReport(proxy_id="p1")

    [kernel] = platform.agent.seen
    for _ in range(2):
        call = Call()
        await links.serve(reports(), call, LinkCaller())
        assert [reply.engines for reply in call.replies] == [
            (EngineRequests(kernel, 3, 1, 250),),
            (),
        ]


async def test_load_of_another_agents_kernel_is_ignored(platform: Loaded) -> None:
    await platform.create(replicas=1)
    await platform.until(complete)
    [kernel] = platform.agent.seen
    for agent, of in (("node-2", kernel), ("node-1", "01900000-0000-7000-8000-000000000000")):
        uses = [(AgentId(agent), EngineUse(KernelId(of), 7, 7))]
        await platform.store.loads.put_engines(uses)
    assert (await platform.service.get(SYSTEM, "m")).running == 0


async def test_reports_are_merged_until_they_are_written(platform: Loaded) -> None:
    await platform.create(replicas=1)
    await platform.until(complete)
    for report in (
        LoadReport(
            "p1",
            "run-1",
            5,
            (ModelLoad("m", in_flight=1), ModelLoad("other", waiting=1)),
            whole=True,
        ),
        LoadReport("p1", "run-1", 6, (ModelLoad("m", waiting=4),)),
    ):
        platform.writer.record_load(report)

    await platform.writer.run_once()
    rows = await platform.store.database.fetch(
        "SELECT model, in_flight, waiting FROM model_loads ORDER BY 1"
    )
    assert [tuple(row.values()) for row in rows] == [("m", 0, 4), ("other", 0, 1)]
    assert (await platform.service.get(SYSTEM, "m")).waiting == 4
    platform.writer.record_load(LoadReport("p1", "run-2", 6, (), whole=True))
    await platform.writer.run_once()
    assert await platform.store.database.fetch("SELECT FROM model_loads") == []


def test_specs_of_the_release_before_are_read() -> None:
    """It has no autoscaling or rollouts."""
    assert (
        EndpointSpec.model_validate(spec().model_dump(exclude={"autoscale", "rollout"})) == spec()
    )


async def test_engines_that_are_none_do_not_fail_those_of_other_agents(platform: Loaded) -> None:
    """They are written in one statement, so a row that makes it fail would make all later usage
    fail."""
    await platform.create(replicas=1)
    await platform.until(complete)

    for kernel in ("x", "\0", "", "01900000"):
        uses = (EngineUse(KernelId(kernel), 1, 1),)
        platform.usage.take(UsageReport(AgentId("hostile"), "1", 0, 0, engines=uses))
        await platform.engines(4, 5, 900)
        [row] = await platform.store.database.fetch("SELECT running, waiting FROM engine_loads")
        assert (row["running"], row["waiting"]) == (4, 5)
        await platform.store.database.fetch("DELETE FROM engine_loads")


async def test_requests_that_wait_in_engines_count_once(platform: Loaded) -> None:
    """They are also in flight at the proxy."""
    await platform.create(**scaled(running=2), replicas=1)
    await platform.until(complete)
    await platform.engines(4, 5)
    await platform.report(in_flight=10, requests=10)
    [endpoint_id] = await platform.store.loads.autoscaled(SYSTEM)
    [endpoint] = await platform.store.loads.of_endpoints(SYSTEM, [endpoint_id])
    assert (endpoint.load.running, endpoint.load.waiting) == (5, 5), (
        "one is on its way to the engine"
    )


@pytest_asyncio.fixture
async def another_store(migrated_database: str) -> AsyncIterator[Store]:
    """Of another manager."""
    async with open_store(migrated_database) as made:
        yield made


def waiting_at(proxy: str, incarnation: str, waiting: int) -> LoadReport:
    return LoadReport(proxy, incarnation, 1, (ModelLoad("m", waiting=waiting),), whole=True)


async def test_name_of_a_proxy_belongs_to_one_process(store: Store, another_store: Store) -> None:
    """Two processes with copies of one state directory, connected to two managers."""

    async def stored() -> tuple[str, int]:
        [row] = await store.database.fetch(
            "SELECT p.incarnation, l.waiting FROM proxy_reports p JOIN model_loads l USING (proxy_id)"
        )
        return row["incarnation"], row["waiting"]

    for one in (store, another_store):
        await one.managers.beat("127.0.0.1:1", [], [], 0, proxy_links=0, now=datetime.now(UTC))

    refused: list[tuple[str, str, str]] = []
    first = LoadWriter(store, StoreClock(), on_refused=lambda *name: refused.append(name))
    second = LoadWriter(another_store, StoreClock(), on_refused=lambda *name: refused.append(name))
    assert await first.claim(waiting_at("p", "original", 1), "192.0.2.1") is None
    assert await second.claim(waiting_at("p", "copy", 2), "192.0.2.2") == "192.0.2.1"
    second.record_load(waiting_at("p", "copy", 3))
    await second.run_once()
    assert (await stored(), refused) == (("original", 1), [("p", "copy", "192.0.2.1")])

    # The original moves to the other manager. That its link to the first manager ends later changes
    # nothing.
    assert await second.claim(waiting_at("p", "original", 4), "192.0.2.1") is None
    first.proxy_gone("p", "original")
    await first.run_once()
    assert await first.claim(waiting_at("p", "copy", 5), "192.0.2.2") == "192.0.2.1"
    assert await stored() == ("original", 4)

    # Its last link ends, so another process may take the name at once.
    second.proxy_gone("p", "original")
    await second.run_once()
    assert await first.claim(waiting_at("p", "copy", 6), "192.0.2.2") is None
    assert await stored() == ("copy", 6)


@pytest.mark.parametrize("end", ["silence", "manager"])
async def test_name_of_a_proxy_is_free_after_its_manager_or_itself_is_gone(
    store: Store, another_store: Store, end: str
) -> None:
    for one in (store, another_store):
        await one.managers.beat("127.0.0.1:1", [], [], 0, proxy_links=0, now=datetime.now(UTC))

    first = LoadWriter(store, StoreClock())
    second = LoadWriter(another_store, StoreClock())
    assert await first.claim(waiting_at("p", "before", 1), "192.0.2.1") is None
    assert await second.claim(waiting_at("p", "after", 1), "192.0.2.1") == "192.0.2.1"

    if end == "silence":
        await store.database.fetch("UPDATE proxy_reports SET at = at - interval '16 s'")
    else:
        await another_store.managers.remove([store.managers.own_id])

    assert await second.claim(waiting_at("p", "after", 1), "192.0.2.1") is None
