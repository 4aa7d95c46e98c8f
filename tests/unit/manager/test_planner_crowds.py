"""Many who ask for the same: what one of them is told, the others are told, as long as it is true of them."""

from __future__ import annotations

from dataclasses import replace

from planner_words import NOW, decide, hold, node, wants, where

from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import Hold
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner


def used_of(held: Hold) -> list[int]:
    return [one.used for one in held.unmet]


def test_each_is_told_what_was_used_of_its_quota_when_it_was_tried() -> None:
    """ann's first two leave 1 of 4 cpus; the third asks for 2, the fourth for 1, the fifth for 2 again."""
    sizes = (2, 1, 2, 1, 2)
    pending = [wants(f"s{n}", cpu, created=n, user="ann") for n, cpu in enumerate(sizes)]
    answer = decide([node("a", 9)], pending, quotas=(Quota("user", "ann", {"cpu": 4000}),))
    assert list(where(answer)) == ["s0", "s1", "s3"]
    assert used_of(hold(answer, "s2")) == [3000]
    assert used_of(hold(answer, "s4")) == [4000], "not what the third was told"


def test_a_place_of_one_owner_changes_nothing_for_another() -> None:
    quotas = Quota("user", "ann", {"cpu": 1000}, {"cpu": 1000}), Quota("user", "bob", {"cpu": 3000})
    pending = [wants(f"s{n}", 1, created=n, user=("ann", "bob")[n % 2]) for n in range(10)]
    answer = decide([node("a", 9)], pending, quotas=quotas)
    assert list(where(answer)) == ["s1", "s3", "s5"]
    assert {name: used_of(hold(answer, name)) for name in ("s0", "s8", "s7", "s9")} == {
        "s0": [1000], "s8": [1000], "s7": [3000], "s9": [3000],
    }  # fmt: skip


def test_a_quota_that_is_used_up_says_nothing_of_room() -> None:
    """The head is the first that has a quota and no room."""
    pending = [wants("s0", 3, user="ann"), wants("s1", 3, created=1, user="bob")]
    answer = decide([node("a", 4, free_cpu=2)], pending, quotas=(Quota("user", "ann", {}, {}, 0, 0),))
    assert [(held.reason, held.capacity) for held in answer.holds] == [
        (Reason.QUOTA, False),
        (Reason.INSUFFICIENT_RESOURCES, True),
    ]


def test_lifo_with_skip_holds_for_one_that_is_overdue_among_those_like_it() -> None:
    """The younger one is refused first, and has no rights yet; the older was overtaken often enough."""
    young, old = wants("young", 4, created=9), replace(wants("old", 4, created=1), bypassed=5)
    options = {"strategy": "lifo", "hol": "skip", "max_bypasses": 5, "max_skip_age": None}
    answer = decide([node("a", 4, free_cpu=2)], [young, old], **options)
    assert [reservation.session_id for reservation in answer.reservations] == ["old"]


def test_holds_are_a_sequence_of_what_each_is_told() -> None:
    answer = decide([node("a", 1)], [wants(f"s{n}", 2, created=n) for n in range(4)])
    holds = answer.holds
    assert len(holds) == 4
    assert [held.session_id for held in holds] == ["s0", "s1", "s2", "s3"]
    assert (holds[1], holds[-1]) == (hold(answer, "s1"), hold(answer, "s3"))
    assert holds[1:3] == (hold(answer, "s1"), hold(answer, "s2"))
    assert holds == tuple(holds)
    assert holds != tuple(holds)[1:]
    assert holds == decide([node("a", 1)], [wants(f"s{n}", 2, created=n) for n in range(4)]).holds
    assert holds[0] in holds


def test_behind_a_blocked_head_nobody_is_told_of_a_quota() -> None:
    pending = [wants(f"s{n}", cpu, created=n, user=user) for n, (cpu, user) in enumerate(
        ((1, "ann"), (3, "bob"), (1, "ann"))
    )]  # fmt: skip
    quota = Quota("user", "ann", {}, {}, 0, 0)
    answer = decide([node("a", 4, free_cpu=2)], pending, hol="strict", quotas=(quota,))
    assert [(held.reason, held.blocked_by) for held in answer.holds] == [
        (Reason.QUOTA, None),
        (Reason.INSUFFICIENT_RESOURCES, None),
        (Reason.INSUFFICIENT_RESOURCES, "s1"),
    ]


def test_a_device_that_counts_for_two_is_given_twice() -> None:
    device = DeviceState(DeviceId("0"), "cuda.device", 2000, 2000)
    pending = [wants(f"s{n}", created=n, slots={"cuda.device": 1}) for n in range(3)]
    answer = decide([node("a", 4, devices=(device,))], pending)
    assert list(where(answer)) == ["s0", "s1"]


def test_what_is_left_of_parts_is_that_of_the_next_device() -> None:
    devices = tuple(DeviceState(DeviceId(f"{n}"), "cuda.device", free) for n, free in enumerate((500, 300)))
    pending = [
        wants(f"s{n}", created=n, slots={"cuda.shares": part}) for n, part in enumerate((500, 300, 100))
    ]
    answer = decide([node("a", 4, devices=devices)], pending)
    assert list(where(answer)) == ["s0", "s1"]


# --- the planner that stays


def resident(*quotas: Quota, cpus: int = 9, free: int | None = None) -> IncrementalPlanner:
    planner = IncrementalPlanner("g", Policy())
    planner.update_agents([node("a", cpus, free_cpu=free)])
    planner.update_quotas(quotas)
    return planner


def queue(*users: str, cpu: int = 1) -> list[Pending]:
    return [wants(f"s{n}", cpu, created=n, user=user) for n, user in enumerate(users)]


def test_all_of_an_owner_without_quota_are_told_so_once() -> None:
    planner = resident(Quota("user", "ann", {}, {}, 0, 0))
    planner.update_sessions(queue("ann", "ann", "bob", "ann"))
    answer = planner.plan(NOW)
    assert [place.session_id for place in answer.places] == ["s2"]
    assert {held.session_id: held.reason for held in answer.holds} == dict.fromkeys(
        ("s0", "s1", "s3"), Reason.QUOTA
    )
    planner.update_sessions((), [SessionId("s2")])
    assert not planner.plan(NOW).holds


def test_who_gets_a_quota_starts_in_order_with_those_who_came_meanwhile() -> None:
    planner = resident(Quota("user", "ann", {}, {}, 0, 0))
    planner.update_sessions(queue("ann", "ann"))
    planner.plan(NOW)
    planner.update_sessions([wants("s9", created=-1, user="ann")])
    planner.update_quotas([Quota("user", "ann", {}, {}, 2, 0)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s9", "s0"]


def test_a_projects_quota_holds_back_its_sessions_and_lets_go_of_them() -> None:
    planner = resident(Quota("project", "p", {}, {}, 0, 0))
    planner.update_sessions([wants("s0", project="p", user="ann"), wants("s1", created=1, project="q")])
    answer = planner.plan(NOW)
    assert [place.session_id for place in answer.places] == ["s1"]
    assert hold(answer, "s0").reason is Reason.QUOTA
    planner.update_quotas([Quota("project", "p", {}, {}, 1, 0)])
    assert "s0" in where(planner.plan(NOW))


def test_a_groups_quota_holds_back_everybody_and_lets_go_of_everybody() -> None:
    planner = resident(Quota("group", "g", {}, {}, 0, 0))
    planner.update_sessions(queue("ann", "bob"))
    assert {held.reason for held in planner.plan(NOW).holds} == {Reason.QUOTA}
    planner.update_quotas([Quota("group", "g", {}, {}, 9, 0)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s0", "s1"]


def test_those_who_lose_their_quota_in_a_pass_are_told_so() -> None:
    """There is room for all, and a quota for one; told what waits for capacity before, all hear of it."""
    planner = resident(Quota("user", "ann", {}, {}, 1, 0), cpus=4, free=0)
    planner.update_sessions(queue("ann", "ann", "ann"))
    assert {held.reason for held in planner.plan(NOW).holds} == {Reason.INSUFFICIENT_RESOURCES}
    planner.update_agents([node("a", 4)])
    answer = planner.plan(NOW)
    assert [place.session_id for place in answer.places] == ["s0"]
    assert {held.session_id: held.reason for held in answer.holds} == {
        "s1": Reason.QUOTA, "s2": Reason.QUOTA,
    }  # fmt: skip


def test_a_session_told_anew_takes_its_new_place() -> None:
    """The first of three becomes the last; and one that is gone leaves no gap."""
    planner = resident(cpus=4, free=0)
    first, second, third = queue("ann", "ann", "ann", cpu=2)
    planner.update_sessions([first, second, third])
    planner.plan(NOW)
    planner.update_sessions([replace(first, created=50)], [second.session_id])
    planner.update_agents([node("a", 4, free_cpu=2)])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s2"]


def test_the_first_end_that_is_known_is_not_the_answer_where_too_little_ends() -> None:
    """Agents are asked in the order of their first ends: the first two give too little by then."""
    planner = resident(cpus=1)
    planner.update_agents([_busy("b", 5), _busy("c", 6, 30), _busy("d", 20, 21)])
    planner.update_sessions([wants("s0", 4)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("d",), NOW + 21)
    planner.update_agents([_busy("c", 6, 7)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("c",), NOW + 7)
    planner.update_agents([_busy("b", 7, 7)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("b",), NOW + 7), "the first of equals"


def test_of_many_agents_where_it_is_due_the_first_is_the_one() -> None:
    """More than are asked one by one. y and z should have given enough by now, z before y."""
    planner = resident(cpus=1)
    planner.update_agents(_busy(f"m{n:02}", -9) for n in range(70))
    planner.update_agents([_busy("y", -9, -3), _busy("z", -9, -5)])
    planner.update_sessions([wants("s0", 4)])
    (reservation,) = planner.plan(NOW).reservations
    assert (reservation.agents, reservation.starts_at) == (("y",), NOW)


def test_a_quota_that_limits_something_else_counts_at_once() -> None:
    planner = resident(Quota("user", "ann", {"cpu": 9000}), free=0)
    planner.update_sessions(queue("ann"))
    assert hold(planner.plan(NOW), "s0").reason is Reason.INSUFFICIENT_RESOURCES
    planner.update_quotas([Quota("user", "ann", {"mem": 10**9, "cpu": 500})])
    assert hold(planner.plan(NOW), "s0").reason is Reason.QUOTA


def test_what_starts_in_this_pass_ends_as_well() -> None:
    """The head needs all of an agent: a has it again when what starts there now has ended, before b has."""
    planner = resident(cpus=4)
    planner.update_agents([_busy("b", 9, 9)])
    planner.update_sessions([wants("s0", 2, time_limit=5), wants("s1", 4, created=1)])
    answer = planner.plan(NOW)
    assert where(answer) == {"s0": ["a"]}
    assert [(one.agents, one.starts_at) for one in answer.reservations] == [(("a",), NOW + 5)]


def _busy(name: str, *ends: int) -> AgentState:
    """Four cpus, two of them for each that ends after so many microseconds; the others for ever."""
    two = (Allocation("cpu", DeviceId(""), 2000),)
    running = [
        Running(SessionId(f"r-{name}-{n}"), KernelId(f"k-{name}-{n}"), two, NOW + end)
        for n, end in enumerate(ends)
    ]
    return node(name, 4, free_cpu=0, running=tuple(running))


def test_room_that_was_kept_is_offered_when_it_is_kept_no_more() -> None:
    """a is kept for the head, and s1 would fit there; then b gets room that the head takes."""
    planner = resident()
    planner.update_agents([_busy("a", 5, 7), _busy("b", 90)])
    planner.update_agents([replace(_busy("a", 7), free={"cpu": 2000, "mem": 8192})])
    planner.update_sessions([wants("s0", 3), wants("s1", 2, created=1)])
    answer = planner.plan(NOW)
    assert [reservation.agents for reservation in answer.reservations] == [("a",)]
    assert {held.session_id: held.reason for held in answer.holds} == {
        "s0": Reason.INSUFFICIENT_RESOURCES, "s1": Reason.RESERVED,
    }  # fmt: skip
    planner.update_agents([node("b", 4, free_cpu=3)])
    assert where(planner.plan(NOW)) == {"s0": ["b"], "s1": ["a"]}


def test_who_waits_behind_the_head_hears_of_another_head() -> None:
    planner = resident()
    planner.update_agents([replace(_busy("a", 7), free={"cpu": 2000, "mem": 8192})])
    planner.update_sessions([wants("h1", 3), wants("h2", 4, created=1), wants("s", 2, created=2)])
    assert hold(planner.plan(NOW), "s").blocked_by == "h1"
    planner.update_sessions((), [SessionId("h1")])
    assert hold(planner.plan(NOW), "s").blocked_by == "h2"


def test_what_a_plan_would_use_up_holds_nobody_back_before_it_is_used() -> None:
    """s0 would take all of the quota, and is stopped before it does."""
    planner = resident(Quota("user", "ann", {}, {}, 1, 0))
    planner.update_sessions(queue("ann", "ann"))
    assert [place.session_id for place in planner.plan(NOW).places] == ["s0"]
    planner.update_sessions((), [SessionId("s0")])
    assert [place.session_id for place in planner.plan(NOW).places] == ["s1"]


def test_who_waited_for_room_meanwhile_is_told_of_the_quota_again() -> None:
    none, some = Quota("user", "ann", {}, {}, 0, 0), Quota("user", "ann", {}, {}, 9, 0)
    planner = resident(none, free=0)
    planner.update_sessions(queue("ann", "ann"))
    said = []
    for quota in (none, some, none):
        if len(said) == 2:
            planner.update_sessions([wants("older", created=-1, user="ann")])
        planner.update_quotas([quota])
        said.append({held.session_id: held.reason for held in planner.plan(NOW).holds})
    assert said[0] == {"s0": Reason.QUOTA, "s1": Reason.QUOTA}
    assert said[1]["s0"] is Reason.INSUFFICIENT_RESOURCES
    assert said[2]["older"] is said[2]["s0"] is Reason.QUOTA


def test_who_never_fits_is_told_so_once_and_is_nobodys_head() -> None:
    planner = resident(free=0)
    planner.update_sessions([wants("huge", 99), wants("next", 1, created=1)])
    first = {held.session_id: held.reason for held in planner.plan(NOW).holds}
    assert first == {"huge": Reason.INFEASIBLE, "next": Reason.INSUFFICIENT_RESOURCES}
    assert [held.session_id for held in planner.plan(NOW).holds] == ["next"]


def test_an_agent_that_joins_takes_those_who_waited() -> None:
    planner = resident(free=0)
    planner.update_sessions(queue("ann", "bob"))
    for _ in range(3):
        assert not planner.plan(NOW).places
    planner.update_agents([node("new", 1)])
    assert where(planner.plan(NOW)) == {"s0": ["new"]}
