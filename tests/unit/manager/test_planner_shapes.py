"""Holds that sessions with the same shape share, and the incremental planner."""

from __future__ import annotations

from dataclasses import replace

from planner_builders import NOW, hold, make_plan, node, placements, session

from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import HeldSession
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner


def used_of(held: HeldSession) -> list[int]:
    return [one.used for one in held.unmet]


def test_quota_holds_report_the_use_when_the_session_was_tried() -> None:
    """ann's first two sessions leave 1 of 4 cpus. The third requests 2, the fourth 1, the fifth
    2."""
    sizes = (2, 1, 2, 1, 2)
    pending = [session(f"s{n}", cpu, created=n, user="ann") for n, cpu in enumerate(sizes)]
    result = make_plan([node("a", 9)], pending, quotas=(Quota("user", "ann", {"cpu": 4000}),))
    assert list(placements(result)) == ["s0", "s1", "s3"]
    assert used_of(hold(result, "s2")) == [3000]
    assert used_of(hold(result, "s4")) == [4000], "not the number of the third session"


def test_place_of_one_owner_changes_no_hold_of_another() -> None:
    quotas = Quota("user", "ann", {"cpu": 1000}, {"cpu": 1000}), Quota("user", "bob", {"cpu": 3000})
    pending = [session(f"s{n}", 1, created=n, user=("ann", "bob")[n % 2]) for n in range(10)]
    result = make_plan([node("a", 9)], pending, quotas=quotas)
    assert list(placements(result)) == ["s1", "s3", "s5"]
    assert {name: used_of(hold(result, name)) for name in ("s0", "s8", "s7", "s9")} == {
        "s0": [1000], "s8": [1000], "s7": [3000], "s9": [3000],
    }  # fmt: skip


def test_used_up_quota_does_not_make_a_head() -> None:
    """The queue head is the first session within its quota that is refused for lack of capacity."""
    pending = [session("s0", 3, user="ann"), session("s1", 3, created=1, user="bob")]
    result = make_plan(
        [node("a", 4, free_cpu=2)], pending, quotas=(Quota("user", "ann", {}, {}, 0, 0),)
    )
    assert [(held.reason, held.capacity) for held in result.holds] == [
        (Reason.QUOTA, False),
        (Reason.INSUFFICIENT_RESOURCES, True),
    ]


def test_lifo_with_skip_holds_agents_for_an_overdue_session_of_a_refused_shape() -> None:
    """The younger session is refused first and is not overdue. The older one has been overtaken
    often enough to be overdue."""
    young = session("young", 4, created=9)
    old = replace(session("old", 4, created=1), bypassed=5)
    options = {"strategy": "lifo", "hol": "skip", "max_bypasses": 5, "max_skip_age": None}
    result = make_plan([node("a", 4, free_cpu=2)], [young, old], **options)
    assert [reservation.session_id for reservation in result.reservations] == ["old"]


def test_holds_behave_as_a_sequence() -> None:
    result = make_plan([node("a", 1)], [session(f"s{n}", 2, created=n) for n in range(4)])
    holds = result.holds
    assert len(holds) == 4
    assert [held.session_id for held in holds] == ["s0", "s1", "s2", "s3"]
    assert (holds[1], holds[-1]) == (hold(result, "s1"), hold(result, "s3"))
    assert holds[1:3] == (hold(result, "s1"), hold(result, "s2"))
    assert holds == tuple(holds)
    assert holds != tuple(holds)[1:]
    assert (
        holds == make_plan([node("a", 1)], [session(f"s{n}", 2, created=n) for n in range(4)]).holds
    )
    assert holds[0] in holds


def test_sessions_behind_a_blocked_head_get_no_quota_hold() -> None:
    pending = [session(f"s{n}", cpu, created=n, user=user) for n, (cpu, user) in enumerate(
        ((1, "ann"), (3, "bob"), (1, "ann"))
    )]  # fmt: skip
    quota = Quota("user", "ann", limits={}, used={}, sessions=0, running=0)
    result = make_plan([node("a", 4, free_cpu=2)], pending, hol="strict", quotas=(quota,))
    assert [(held.reason, held.blocked_by) for held in result.holds] == [
        (Reason.QUOTA, None),
        (Reason.INSUFFICIENT_RESOURCES, None),
        (Reason.INSUFFICIENT_RESOURCES, "s1"),
    ]


def test_device_with_the_capacity_of_two_is_allocated_twice() -> None:
    device = DeviceState(DeviceId("0"), "cuda.device", 2000, 2000)
    pending = [session(f"s{n}", created=n, slots={"cuda.device": 1}) for n in range(3)]
    result = make_plan([node("a", 4, devices=(device,))], pending)
    assert list(placements(result)) == ["s0", "s1"]


def test_fraction_that_fits_one_device_leaves_the_next_one() -> None:
    devices = tuple(
        DeviceState(DeviceId(f"{n}"), "cuda.device", free) for n, free in enumerate((500, 300))
    )
    pending = [
        session(f"s{n}", created=n, slots={"cuda.shares": part})
        for n, part in enumerate((500, 300, 100))
    ]
    result = make_plan([node("a", 4, devices=devices)], pending)
    assert list(placements(result)) == ["s0", "s1"]


# --- the incremental planner


def planner_with(*quotas: Quota, cpus: int = 9, free: int | None = None) -> IncrementalPlanner:
    planner = IncrementalPlanner("g", Policy())
    planner.update_agents([node("a", cpus, free_cpu=free)])
    planner.update_quotas(quotas)
    return planner


def queue(*users: str, cpu: int = 1) -> list[Pending]:
    return [session(f"s{n}", cpu, created=n, user=user) for n, user in enumerate(users)]


def test_sessions_over_quota_get_one_hold_each() -> None:
    planner = planner_with(Quota("user", "ann", limits={}, used={}, sessions=0, running=0))
    planner.update_sessions(queue("ann", "ann", "bob", "ann"))
    result = planner.plan(NOW)
    assert [place.session_id for place in result.places] == ["s2"]
    assert {held.session_id: held.reason for held in result.holds} == dict.fromkeys(
        ("s0", "s1", "s3"), Reason.QUOTA
    )
    planner.update_sessions((), [SessionId("s2")])
    assert not planner.plan(NOW).holds


def test_raised_quota_starts_sessions_in_queue_order() -> None:
    planner = planner_with(Quota("user", "ann", limits={}, used={}, sessions=0, running=0))
    planner.update_sessions(queue("ann", "ann"))
    planner.plan(NOW)
    planner.update_sessions([session("s9", created=-1, user="ann")])
    planner.update_quotas([Quota("user", "ann", {}, {}, 2, 0)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s9", "s0"]


def test_project_quota_holds_and_releases_its_sessions() -> None:
    planner = planner_with(Quota("project", "p", limits={}, used={}, sessions=0, running=0))
    planner.update_sessions(
        [session("s0", project="p", user="ann"), session("s1", created=1, project="q")]
    )
    result = planner.plan(NOW)
    assert [place.session_id for place in result.places] == ["s1"]
    assert hold(result, "s0").reason is Reason.QUOTA
    planner.update_quotas([Quota("project", "p", {}, {}, 1, 0)])
    assert "s0" in placements(planner.plan(NOW))


def test_group_quota_holds_and_releases_all_sessions() -> None:
    planner = planner_with(Quota("group", "g", limits={}, used={}, sessions=0, running=0))
    planner.update_sessions(queue("ann", "bob"))
    assert {held.reason for held in planner.plan(NOW).holds} == {Reason.QUOTA}
    planner.update_quotas([Quota("group", "g", {}, {}, 9, 0)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s0", "s1"]


def test_sessions_that_exceed_the_quota_after_a_place_get_a_quota_hold() -> None:
    """Capacity returns for all of them, but the quota allows one, so the reason of the others
    changes."""
    planner = planner_with(
        Quota("user", "ann", limits={}, used={}, sessions=1, running=0), cpus=4, free=0
    )
    planner.update_sessions(queue("ann", "ann", "ann"))
    assert {held.reason for held in planner.plan(NOW).holds} == {Reason.INSUFFICIENT_RESOURCES}
    planner.update_agents([node("a", 4)])
    result = planner.plan(NOW)
    assert [place.session_id for place in result.places] == ["s0"]
    assert {held.session_id: held.reason for held in result.holds} == {
        "s1": Reason.QUOTA, "s2": Reason.QUOTA,
    }  # fmt: skip


def test_updated_session_moves_in_the_queue() -> None:
    """The first of three becomes the last, and the second is gone."""
    planner = planner_with(cpus=4, free=0)
    first, second, third = queue("ann", "ann", "ann", cpu=2)
    planner.update_sessions([first, second, third])
    planner.plan(NOW)
    planner.update_sessions([replace(first, created=50)], [second.session_id])
    planner.update_agents([node("a", 4, free_cpu=2)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s2"]


def test_earliest_fit_is_not_the_first_end_if_too_little_ends() -> None:
    """Agents are probed in the order of their first end times; the first two agents release too
    little by then."""
    planner = planner_with(cpus=1)
    planner.update_agents([_busy("b", 5), _busy("c", 6, 30), _busy("d", 20, 21)])
    planner.update_sessions([session("s0", 4)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("d",), NOW + 21)
    planner.update_agents([_busy("c", 6, 7)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("c",), NOW + 7)
    planner.update_agents([_busy("b", 7, 7)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("b",), NOW + 7), (
        "the first among equals"
    )


def test_of_many_overdue_agents_the_first_by_id_is_reserved() -> None:
    """There are more agents than are probed one by one. y and z should have released enough by now,
    z before y."""
    planner = planner_with(cpus=1)
    planner.update_agents(_busy(f"m{n:02}", -9) for n in range(70))
    planner.update_agents([_busy("y", -9, -3), _busy("z", -9, -5)])
    planner.update_sessions([session("s0", 4)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("y",), NOW)


def test_quota_with_other_slots_applies_at_once() -> None:
    planner = planner_with(Quota("user", "ann", {"cpu": 9000}), free=0)
    planner.update_sessions(queue("ann"))
    assert hold(planner.plan(NOW), "s0").reason is Reason.INSUFFICIENT_RESOURCES
    planner.update_quotas([Quota("user", "ann", {"mem": 10**9, "cpu": 500})])
    assert hold(planner.plan(NOW), "s0").reason is Reason.QUOTA


def test_reservation_counts_ends_of_sessions_placed_in_this_pass() -> None:
    """The queue head needs a whole agent: once the session that is now placed on ``a`` has ended,
    ``a`` becomes free before ``b`` does."""
    planner = planner_with(cpus=4)
    planner.update_agents([_busy("b", 9, 9)])
    planner.update_sessions([session("s0", 2, time_limit=5), session("s1", 4, created=1)])
    result = planner.plan(NOW)
    assert placements(result) == {"s0": ["a"]}
    assert [(one.agents, one.starts_at) for one in result.reservations] == [(("a",), NOW + 5)]


def _busy(name: str, *ends: int) -> AgentState:
    """An agent with four cpus: two for each kernel with a given end time in microseconds; the other
    kernels have no end time."""
    two = (Allocation("cpu", DeviceId(""), 2000),)
    running = [
        Running(SessionId(f"r-{name}-{n}"), KernelId(f"k-{name}-{n}"), two, NOW + end)
        for n, end in enumerate(ends)
    ]
    return node(name, 4, free_cpu=0, running=tuple(running))


def test_node_is_offered_when_its_reservation_ends() -> None:
    """``a`` is reserved for the queue head, and ``s1`` would fit there; then the head fits on
    ``b``."""
    planner = planner_with()
    planner.update_agents([_busy("a", 5, 7), _busy("b", 90)])
    planner.update_agents([replace(_busy("a", 7), free={"cpu": 2000, "mem": 8192})])
    planner.update_sessions([session("s0", 3), session("s1", 2, created=1)])
    result = planner.plan(NOW)
    assert [reservation.agents for reservation in result.reservations] == [("a",)]
    assert {held.session_id: held.reason for held in result.holds} == {
        "s0": Reason.INSUFFICIENT_RESOURCES, "s1": Reason.RESERVED,
    }  # fmt: skip
    planner.update_agents([node("b", 4, free_cpu=3)])
    assert placements(planner.plan(NOW)) == {"s0": ["b"], "s1": ["a"]}


def test_hold_names_the_new_head() -> None:
    planner = planner_with()
    planner.update_agents([replace(_busy("a", 7), free={"cpu": 2000, "mem": 8192})])
    planner.update_sessions(
        [session("h1", 3), session("h2", 4, created=1), session("s", 2, created=2)]
    )
    assert hold(planner.plan(NOW), "s").blocked_by == "h1"
    planner.update_sessions((), [SessionId("h1")])
    assert hold(planner.plan(NOW), "s").blocked_by == "h2"


def test_uncommitted_places_do_not_use_up_a_quota() -> None:
    """s0 would use up the quota, and is cancelled before its placement is committed."""
    planner = planner_with(Quota("user", "ann", limits={}, used={}, sessions=1, running=0))
    planner.update_sessions(queue("ann", "ann"))
    assert [place.session_id for place in planner.plan(NOW).places] == ["s0"]
    planner.update_sessions((), [SessionId("s0")])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s1"]


def test_quota_hold_is_repeated_after_a_capacity_hold() -> None:
    none = Quota("user", "ann", limits={}, used={}, sessions=0, running=0)
    some = Quota("user", "ann", limits={}, used={}, sessions=9, running=0)
    planner = planner_with(none, free=0)
    planner.update_sessions(queue("ann", "ann"))
    reasons = []
    for quota in (none, some, none):
        if len(reasons) == 2:
            planner.update_sessions([session("older", created=-1, user="ann")])

        planner.update_quotas([quota])
        reasons.append({held.session_id: held.reason for held in planner.plan(NOW).holds})

    assert reasons[0] == {"s0": Reason.QUOTA, "s1": Reason.QUOTA}
    assert reasons[1]["s0"] is Reason.INSUFFICIENT_RESOURCES
    assert reasons[2]["older"] is reasons[2]["s0"] is Reason.QUOTA


def test_infeasible_session_gets_one_hold_and_is_no_head() -> None:
    planner = planner_with(free=0)
    planner.update_sessions([session("huge", 99), session("next", 1, created=1)])
    first = {held.session_id: held.reason for held in planner.plan(NOW).holds}
    assert first == {"huge": Reason.INFEASIBLE, "next": Reason.INSUFFICIENT_RESOURCES}
    assert [held.session_id for held in planner.plan(NOW).holds] == ["next"]


def test_new_agent_takes_pending_sessions() -> None:
    planner = planner_with(free=0)
    planner.update_sessions(queue("ann", "bob"))
    for _ in range(3):
        assert not planner.plan(NOW).places
    planner.update_agents([node("new", 1)])
    assert placements(planner.plan(NOW)) == {"s0": ["new"]}
