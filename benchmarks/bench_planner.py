"""Benchmark of the planner: a pass over ten thousand sessions and a thousand agents, and one freed
slot.

Two references alternate with it: a scan over dicts of Decimals, as schedulers are often written,
and a scan of every agent in C, which is the limit without an index. All three must choose the same
agents. The planner also selects devices, enforces quotas and reservations, and explains refusals.

Reports CPU time, the median of the rounds; for a freed slot also elapsed time. The scan over dicts
is timed on the first sessions of the same snapshot and extrapolated; its cost per session does not
decrease later on.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import machine, machine_line
from moorage.common.aio.gc import freeze_startup_objects
from moorage.manager.scheduling import AgentState, Plan, Policy, Snapshot, plan
from moorage.manager.scheduling.core.model import Quota
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from planner_worlds import FILLED, GIB, NOW, CScan, dict_scan, session, world

POLICY = Policy()  # the default of resource groups: backfill with its bounds
GOALS_MS = {"all fit": 250, "none fits": 10, "mixed": 150}
ROUNDS = 7
NAIVE_SESSIONS = 40


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def same_choices(snapshot: Snapshot, answer: Plan, other: list[int], what: str) -> None:
    """Compare the agents of all sessions in queue order, with plans that make no reservations."""
    where = {place.session_id: place.agent_id for place in answer.places}
    items = sorted(snapshot.pending, key=lambda item: item.queue_key)
    for item, number in zip(items, other, strict=False):
        chosen = snapshot.agents[number].agent_id if number >= 0 else None
        if where.get(item.session_id) != chosen:
            sys.exit(
                f"{what} gives {item.session_id} to {chosen}, the planner to {where.get(item.session_id)}"
            )


def one_shape(shape: str, pending: int, agents: int, c: CScan) -> dict[str, float]:
    snapshot = world(shape, pending, agents)
    items = sorted(snapshot.pending, key=lambda item: item.queue_key)
    cold, _ = timed(lambda: plan(snapshot, POLICY, NOW))
    ours = []
    in_c = []
    naive = []

    for _ in range(ROUNDS):
        took, answer = timed(lambda: plan(snapshot, POLICY, NOW))
        ours.append(took)
        if c:
            arrays = c.prepare(snapshot.agents, items)
            took, _ = timed(lambda arrays=arrays: c.run(arrays, agents, pending))
            in_c.append(took)

    for _ in range(3):
        took, slow = timed(lambda: dict_scan(snapshot.agents, items[:NAIVE_SESSIONS]))
        naive.append(took * pending / NAIVE_SESSIONS)

    free = plan(snapshot, Policy("skip", max_bypasses=None, max_skip_age=None), NOW)
    same_choices(snapshot, free, slow, "the scan over dicts")
    if c:
        same_choices(snapshot, free, list(arrays[3]), "the scan in C")

    groups = [world(shape, pending // 100, agents // 100, seed) for seed in range(100)]
    hundred = [timed(lambda: [plan(group, POLICY, NOW) for group in groups])[0] for _ in range(3)]
    return {
        "placed": len(answer.places),
        "ms": 1000 * statistics.median(ours),
        "first_ms": 1000 * cold,
        "hundred_groups_ms": 1000 * statistics.median(hundred),
        "c_ms": 1000 * statistics.median(in_c) if in_c else float("nan"),
        "dicts_ms": 1000 * statistics.median(naive),
    }


def hundred_cached_groups(pending: int, agents: int) -> dict[str, float]:
    """A hundred groups in which nothing fits, through the planner cache: when nothing has changed,
    when each group has a new session, and when each has an agent with a little more free
    capacity."""
    groups = [
        replace(world("none fits", pending // 100, agents // 100, seed), group=f"g{seed}")
        for seed in range(100)
    ]
    planners = PlannerCache()
    rng = random.Random(1)
    changes: dict[str, Callable[[Snapshot, int], Snapshot]] = {
        "nothing": lambda group, turn: group,
        "a session": lambda group, turn: replace(
            group, pending=(*group.pending, session(pending + turn, rng))
        ),
        "an agent": lambda group, turn: replace(
            group, agents=(freed(group.agents[0], 100 + turn, 0, 0), *group.agents[1:])
        ),
    }
    first = timed(lambda: [planners.plan(group, POLICY, NOW) for group in groups])[0]
    found = {"first_ms": 1000 * first}
    for what, change in changes.items():
        took = []
        for turn in range(ROUNDS):
            now = [change(group, turn) for group in groups]
            spent, plans = timed(
                lambda now=now: [planners.plan(group, POLICY, NOW) for group in now]
            )
            took.append(spent)
            if any(made.places for made in plans):
                sys.exit("something was placed where nothing fits")

        found[what] = 1000 * statistics.median(took)

    return found


def freed(agent: AgentState, cpu: int, mem: int, gpus: int) -> AgentState:
    """The full agent after something of that size has ended on it."""
    free = {"cpu": agent.free["cpu"] + cpu, "mem": agent.free["mem"] + mem}
    devices = [
        replace(d, free=1000) if number < gpus else d for number, d in enumerate(agent.devices)
    ]
    return replace(agent, free=free, devices=tuple(devices))


def freed_slots(pending: int, agents: int, exact: bool, events: int = 200) -> dict[str, float]:
    """A session ends on one agent with GPUs after another, and the agent is filled again.
    ``exact``: the session was as large as the oldest pending one; otherwise it had 4 cpus, 16 GiB
    and a GPU, which is room for several."""
    snapshot = world("none fits", pending, agents)
    planner = IncrementalPlanner("g", POLICY)
    planner.update_agents(snapshot.agents)
    planner.update_sessions(snapshot.pending)
    planner.update_quotas(snapshot.quotas)
    first, _ = timed(lambda: planner.plan(NOW))
    with_gpus = [state for state in snapshot.agents if state.devices]
    waiting = sorted(snapshot.pending, key=lambda item: item.queue_key)
    took = []
    clock = []
    whole = []
    placed = 0
    for number in range(events):
        full = with_gpus[number * 7 % len(with_gpus)]
        oldest = next(item for item in waiting if item.session_id in planner.pending).slots
        sizes = (
            (oldest["cpu"], oldest["mem"], oldest.get("cuda.device", 0))
            if exact
            else (4000, 16 * GIB, 1)
        )
        changed = freed(full, *sizes)
        start = time.thread_time()
        since = time.perf_counter()
        planner.update_agents([changed])
        answer = planner.plan(NOW)
        took.append(time.thread_time() - start)
        clock.append(time.perf_counter() - since)
        placed += len(answer.places)

        if number % 50 == 0:
            spent, same = timed(lambda: plan(planner.snapshot(), POLICY, NOW))
            whole.append(spent)
            if (same.places, same.reservations) != (answer.places, answer.reservations):
                sys.exit("the incremental planner and a plan from scratch differ")

        planner.update_sessions((), [place.session_id for place in answer.places])
        planner.update_agents([full])
        planner.plan(NOW)

    return {
        "events": events,
        "placed": placed,
        "p50_us": 1e6 * statistics.median(took),
        "p99_us": 1e6 * sorted(took)[int(0.99 * len(took))],
        "clock_p50_us": 1e6 * statistics.median(clock),
        "clock_p99_us": 1e6 * sorted(clock)[int(0.99 * len(clock))],
        "full_pass_ms": 1000 * statistics.median(whole),
        "first_ms": 1000 * first,
    }


def one_owner(pending: int, agents: int) -> dict[str, float]:
    """``pending`` sessions of one user whose quota is used up, with free capacity for many."""
    snapshot = world("all fit", pending, agents)
    mine = tuple(replace(item, user="user-00") for item in snapshot.pending)
    quota = Quota("user", "user-00", {"cpu": 4000}, {"cpu": 4000})
    snapshot = replace(snapshot, pending=mine, quotas=(quota,))
    full = [timed(lambda: plan(snapshot, POLICY, NOW))[0] for _ in range(3)]
    planners = PlannerCache()
    first, told = timed(lambda: planners.plan(snapshot, POLICY, NOW))
    again = [timed(lambda: planners.plan(snapshot, POLICY, NOW))[0] for _ in range(3)]
    more = replace(snapshot, quotas=(replace(quota, limits={"cpu": 8000}),))
    some, placed = timed(lambda: planners.plan(more, POLICY, NOW))
    if len(told.holds) != pending or not placed.places:
        sys.exit("not every session is held for its quota, or none starts after it grew")

    return {
        "full_ms": 1000 * statistics.median(full),
        "cached_first_ms": 1000 * first,
        "cached_ms": 1000 * statistics.median(again),
        "cached_raised_ms": 1000 * some,
    }


def preemption(pending: int, agents: int) -> dict[str, float]:
    """All agents are full of sessions without a known end; either those of lower priority may be
    stopped, or none."""
    snapshot = world("none fits", pending, agents)
    policy = Policy(preemption=Preemption())
    found = {}
    for what, priority in (("ms", 5), ("hopeless_ms", 50)):
        states = tuple(
            replace(
                agent,
                running=tuple(
                    replace(running, preemptible=True, priority=priority, ends_at=None)
                    for running in agent.running
                ),
            )
            for agent in snapshot.agents
        )
        now = replace(snapshot, agents=states)
        rounds = [timed(lambda now=now: plan(now, policy, NOW)) for _ in range(3)]
        found[what] = 1000 * statistics.median(took for took, _ in rounds)
        found[f"victims_{what}"] = len(rounds[0][1].victims)

    return found


def growth(pending: int, agents: int) -> dict[str, float]:
    snapshot = world("mixed", pending, agents)
    took = min(timed(lambda: plan(snapshot, POLICY, NOW))[0] for _ in range(3))
    tracemalloc.start()
    answer = plan(snapshot, POLICY, NOW)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    return {
        "placed": len(answer.places),
        "ms": 1000 * took,
        "plan_mb": kept / 1e6,
        "peak_mb": peak / 1e6,
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        "| shape | placed | ms | goal | first ms | 100 groups ms | dicts of Decimals ms | × | C scan ms "
        "| ours/C |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for shape, row in found["shapes"].items():
        lines.append(
            f"| {shape} | {row['placed']} | {row['ms']:.1f} | {GOALS_MS[shape]} "
            f"| {row['first_ms']:.1f} | {row['hundred_groups_ms']:.1f} "
            f"| {row['dicts_ms']:,.0f} | {row['dicts_ms'] / row['ms']:,.0f} | {row['c_ms']:.1f} "
            f"| {row['ms'] / row['c_ms']:.1f} |"
        )

    for name, row in found["freed"].items():
        lines.append(
            f"\n{name}, {found['pending']:,} blocked: p50 {row['p50_us']:.0f} µs, p99 {row['p99_us']:.0f} µs "
            f"(elapsed {row['clock_p50_us']:.0f} and {row['clock_p99_us']:.0f}; {row['placed']} placed "
            f"in {row['events']} events; a full pass {row['full_pass_ms']:.1f} ms)"
        )

    row = found["hundred"]
    lines.append(
        f"\n100 groups in which none fits, through the planner cache (goal {GOALS_MS['none fits']}): "
        f"{row['nothing']:.1f} ms when nothing has changed, {row['a session']:.1f} ms with a new session in "
        f"each, {row['an agent']:.1f} ms when an agent of each has more free capacity; the first time "
        f"{row['first_ms']:.0f} ms"
    )
    row = found["one_owner"]
    lines.append(
        f"\n{found['one_owner_pending']:,} sessions of one user over quota: from scratch "
        f"{row['full_ms']:.0f} ms; the planner cache {row['cached_first_ms']:.0f} ms when all are new, "
        f"{row['cached_ms']:.1f} ms "
        f"when nothing changed, {row['cached_raised_ms']:.1f} ms when the quota grew"
    )
    row = found["preemption"]
    lines.append(
        f"\npreemption, {found['pending']:,} blocked: {row['ms']:.0f} ms with {row['victims_ms']} victims, "
        f"{row['hopeless_ms']:.0f} ms where no session may be stopped"
    )

    for pending, row in found["growth"].items():
        lines.append(
            f"mixed, {int(pending):>7,} pending: {row['ms']:8.1f} ms, {row['placed']} placed, plan "
            f"{row['plan_mb']:.1f} MB, at most {row['peak_mb']:.1f} MB"
        )

    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pending", type=int, default=10_000)
    options.add_argument("--agents", type=int, default=1_000)
    options.add_argument(
        "--one-owner", type=int, default=100_000, help="pending sessions of one user over quota"
    )
    options.add_argument("--growth", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    args = options.parse_args()
    about = machine()
    c = CScan()
    freeze_startup_objects()  # as the manager does when it has started
    if not c:
        print("no C compiler found: the C scan is left out")

    found: dict[str, Any] = {
        "machine": about,
        "pending": args.pending,
        "agents": args.agents,
        "one_owner_pending": args.one_owner,
    }
    found["shapes"] = {shape: one_shape(shape, args.pending, args.agents, c) for shape in FILLED}
    found["freed"] = {
        "one freed slot": freed_slots(args.pending, args.agents, True),
        "room for one or more": freed_slots(args.pending, args.agents, False),
    }
    found["hundred"] = hundred_cached_groups(args.pending, args.agents)
    found["one_owner"] = one_owner(args.one_owner, args.agents)
    found["preemption"] = preemption(args.pending, args.agents)
    found["growth"] = {str(pending): growth(pending, args.agents) for pending in args.growth}
    print(
        f"{machine_line(about)}\n{args.pending:,} pending, {args.agents:,} agents, quotas and backfill on\n"
    )
    print(table(found))
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "planner.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
