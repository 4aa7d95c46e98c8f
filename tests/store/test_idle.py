"""Idle criteria in Postgres: what does and does not end a session, and extensions."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.link.proxy_messages import LoadReport
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.resource_usage import KernelMinute, UsageReport, Use
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.idle_controller import IdleController
from moorage.manager.loops.load_writer import LoadWriter
from moorage.manager.loops.traffic_writer import TrafficWriter
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, mark_silent, reconcile_all, schedule
from .tenancy_harness import serve

ANN = Scope.system("key:ann", Owner("ann", "vision"))
WEB = {"ports": [{"name": "web"}]}


class World:
    """One leader with its idle controller, an agent, and the traffic of one manager. Time passes
    only in ``look``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.agent = FakeAgent(store)
        self.traffic = TrafficWriter(store, self.clock)
        self.loads = LoadWriter(store, self.clock, self.traffic.record)
        self.lead()

    def lead(self) -> None:
        """Another manager leads."""
        self.leader = Leader(self.store, self.clock)
        terminator = SessionTerminator(self.store, LOST_GRACE_S)
        self.idle = IdleController(self.store, self.leader, terminator, self.clock)

    async def policy(self, **idle: Any) -> None:
        options = GroupOptions.model_validate({"idle": {"warning_s": 10, **idle}})
        await self.store.groups.put("default", options, actor="root")

    async def start(self, name: str = "dev", **more: Any) -> SessionView:
        fields = {"name": name, "type": "interactive", "resources": {"cpu": 1, "mem": "1GiB"}}
        made = await self.store.sessions.create(ANN, SessionSpec.model_validate(fields | more))
        await self.agent.report()
        await schedule(self.store)
        kernel = (await self.get(made.id)).kernels[0]
        apps = (AppPort("web", 21001, "http", False, 21001),) if "ports" in more else ()
        self.agent.see(kernel.id, ObservedState.RUNNING, **RUNNING, apps=apps)
        await self.agent.report()
        await reconcile_all(self.store)

        return await self.get(made.id)

    async def get(self, ref: str = "dev") -> SessionView:
        return await self.store.sessions.get(Scope.system(), ref)

    async def look(self, *seconds: float, ref: str = "dev") -> Status:
        """Let the controller check after each of these pauses."""
        for pause in seconds:
            self.clock.advance(pause)
            # that of `schedule`
            await self.store.database.fetch("DELETE FROM leases WHERE holder = 'test'")
            await self.leader.run_once()
            await self.store.database.fetch(
                "UPDATE leases SET expires_at = now() + interval '1 hour'"
            )
            await self.loads.run_once()
            await self.traffic.run_once()
            await self.idle.run_once()

        return (await self.get(ref)).status

    def proxy(self, *apps: str, tells: bool = True) -> None:
        self.loads.record_load(LoadReport("p1", "run-1", 1, (), apps=apps, tells_apps=tells))

    async def events(self, ref: str = "dev") -> list[str]:
        page = await self.store.sessions.history(Scope.system(), ref)
        return [
            entry.event for entry in page.items if entry.event in ("idle-warning", "in-use", "stop")
        ]


async def warned_routes(world: World) -> list[tuple[bool, str]]:
    """For each app, whether the session's end is near and by which criterion, as sent to
    proxies."""
    at = datetime.now(UTC).timestamp()
    apps = (await world.store.routes.table()).apps
    return [(-10 <= app.idle_ends_at - at <= 20, app.idle_criterion) for app in apps]


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


async def test_an_unused_session_is_warned_and_ends_with_its_criterion(world: World) -> None:
    await world.policy(traffic={"max_s": 30})
    await world.start()
    busy = await world.start("busy")
    with world.traffic.using(busy.id):
        assert await world.look(5, 10, 10) is Status.RUNNING
        warned = await world.get()
        assert warned.detail == "idle: ends in 10s by criterion traffic"
        assert await world.look(10, 10) is Status.TERMINATING

    ended = await world.get()
    assert (ended.reason, ended.detail) == (Reason.IDLE_TIMEOUT, "criterion traffic")
    assert await world.events() == ["idle-warning", "stop"]
    assert await world.look(10, ref="busy") is Status.RUNNING
    assert await world.events("busy") == []


async def test_traffic_takes_the_warning_back(world: World) -> None:
    await world.policy(traffic={"max_s": 30})
    made = await world.start(**WEB)
    world.proxy()
    assert await warned_routes(world) == [(False, "")]
    await world.look(5, 10, 12)
    assert await warned_routes(world) == [(True, "traffic")], "proxies tell of it"
    world.proxy(made.id)
    assert await world.look(10) is Status.RUNNING
    assert await world.events() == ["idle-warning", "in-use"]
    assert (await world.get()).detail == ""
    assert await warned_routes(world) == [(False, "")]


@pytest.mark.parametrize("tells", [True, False])
async def test_a_proxy_that_does_not_tell_of_traffic_ends_no_session(
    world: World, tells: bool
) -> None:
    await world.policy(traffic={"max_s": 30})
    await world.start(**WEB)
    world.proxy(tells=tells)
    if tells:  # it was there, but is silent now
        await world.look(5, 5)
        await world.store.database.fetch("UPDATE proxy_reports SET at = at - interval '1 minute'")

    assert await world.look(*[10] * 10) is Status.RUNNING
    assert await world.events() == []
    world.proxy()
    await world.look(1)
    assert await world.look(*[10] * 5) is Status.TERMINATING, "from now on, its silence counts"


async def test_a_silent_agent_ends_no_session(world: World) -> None:
    await world.policy(lifetime={"max_s": 30})
    await world.start()
    await mark_silent(world.store, lost=False)
    await world.store.database.fetch("DELETE FROM leases")
    assert await world.look(*[10] * 10) is Status.RUNNING


async def test_neither_a_gap_nor_a_failover_counts(world: World) -> None:
    await world.policy(lifetime={"max_s": 60})
    await world.start()
    await world.look(5, 10)
    assert await world.look(100_000, 10) is Status.RUNNING
    found = await world.store.idle.find(ANN, (await world.get()).id)
    assert found is not None
    assert found.state.observed_s == 35  # 10 and 10, and 15 for the gap
    world.lead()
    await world.look(14, 1)
    found = await world.store.idle.find(ANN, (await world.get()).id)
    assert found is not None
    assert found.state.observed_s == 36


async def test_utilization_counts_once_its_window_is_measured(world: World) -> None:
    await world.policy(utilization={"window_s": 120, "cpu": 10, "memory": 10})
    idle = await world.start()
    busy = await world.start("busy")
    unmeasured = await world.start("unmeasured")
    now = int(time.time()) // 60 * 60
    for session, cpu in ((idle, 20), (busy, 500)):
        kernel = KernelId(session.kernels[0].id)
        use = Use(cpu, 1024)
        report = UsageReport(AgentId("node-1"), "incarnation-1", 0, 0)
        minutes = [(report, KernelMinute(kernel, now - 60 * n, 12, use, use)) for n in (1, 2, 3)]
        await world.store.usage.put_minutes(minutes)

    assert await world.look(1, *[15] * 7) is Status.RUNNING
    assert await world.look(15, 15, 15) is Status.TERMINATING
    assert (await world.get()).detail == "criterion utilization"
    assert await world.look(15, ref="busy") is Status.RUNNING
    assert (await world.get(unmeasured.id)).status is Status.RUNNING


async def test_extensions_are_bounded_and_come_before_an_end(world: World) -> None:
    await world.policy(lifetime={"max_s": 20}, extension_s=100, extensions=1)
    made = await world.start()
    await world.look(5, 10)
    [session], idle = await world.store.idle.sessions(), world.store.idle
    assert await idle.extend(ANN, made.id, 40, 1)
    assert not await idle.extend(ANN, made.id, 40, 1)
    assert await world.look(15, 15) is Status.RUNNING
    assert session.state.extensions == 0
    found = await idle.find(ANN, made.id)
    assert found is not None
    assert found.state.extensions == 1
    assert await world.look(15, 15, 15) is Status.TERMINATING


async def test_sessions_without_criteria_are_not_read(world: World) -> None:
    await world.start()
    assert await world.store.idle.sessions() == []
    own = await world.start("own", idle={"traffic_s": 60})
    assert [one.session_id for one in await world.store.idle.sessions()] == [own.id]
    with world.traffic.using(own.id):
        await world.look(1, 1)
    await world.store.idle.saw_traffic(["none", ""])


async def test_rest_refuses_what_the_bounds_do_not_allow_and_extends(world: World) -> None:
    await world.policy(traffic={"min_s": 60, "max_s": 600}, extension_s=100, extensions=1)
    async with serve(world.store) as api:

        async def call(caller: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
            status, text = await api.call(caller, method, path, body)
            return status, json.loads(text)

        body = {"type": "interactive", "idle": {"traffic_s": 5}}
        status, answer = await call("ann", "POST", "/v1/sessions", body)
        assert (status, "allows 60 to 600" in str(answer)) == (422, True), answer
        made = await world.start(idle={"traffic_s": 90})
        await world.look(5, 10)
        path = f"/v1/sessions/{made.id}"
        status, view = await call("ann", "GET", f"{path}/idle")
        assert (status, view["criteria"]) == (200, [{"name": "traffic", "remaining_s": 80}])
        assert (await call("ann", "POST", f"{path}/extend", {"seconds": 101}))[0] == 422
        assert (await call("bob", "POST", f"{path}/extend", {}))[0] == 404
        status, view = await call("ann", "POST", f"{path}/extend", {})
        assert (status, view["extensions"], view["ends_in_s"]) == (200, 1, 100)
        assert (await call("ann", "POST", f"{path}/extend", {}))[0] == 409


async def test_a_batch_session_that_nobody_connects_to_goes_on(world: World) -> None:
    await world.policy(traffic={"max_s": 30})
    await world.start("job", type="batch", command=["train"])
    assert await world.look(*[10] * 10, ref="job") is Status.RUNNING
    assert await world.events("job") == []
