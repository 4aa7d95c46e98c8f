"""Snapshots for the planner's benchmark, and the two scans that it is compared with."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Snapshot
from moorage.manager.scheduling.core.model import Allocation, Quota, Running

GIB = 1024**3
NOW = 1_000_000_000
USERS = [f"user-{number:02}" for number in range(20)]
SLOTS = ("cuda.device", "cpu", "mem")


def agent(number: int, filled: float, rng: random.Random) -> AgentState:
    """Eight GPUs on four of five agents. ``filled``: the fraction in use by four kernels with known
    ends."""
    gpus = 8 if number % 5 else 0
    capacity = {"cpu": 64_000, "mem": 512 * GIB}
    free = {slot: round(amount * (1 - filled)) // 1000 * 1000 for slot, amount in capacity.items()}
    taken = round(gpus * filled)
    running = tuple(
        Running(
            SessionId(f"r-{number}-{part}"),
            KernelId(f"rk-{number}-{part}"),
            (
                *(
                    Allocation("cuda.device", DeviceId(f"{gpu}"), 1000)
                    for gpu in range(taken)
                    if gpu % 4 == part
                ),
                *(
                    Allocation(slot, DeviceId(""), (capacity[slot] - free[slot]) // 4)
                    for slot in capacity
                ),
            ),
            NOW + rng.randrange(1, 3_600_000_000),
            user=rng.choice(USERS),
        )
        for part in range(4 if filled else 0)
    )
    devices = tuple(
        DeviceState(DeviceId(f"{gpu}"), "cuda.device", 0 if gpu < taken else 1000)
        for gpu in range(gpus)
    )
    serves = frozenset({"process"}), frozenset({"custom"})

    return AgentState(
        AgentId(f"agent-{number:04}"), *serves, free, capacity, devices, running=running
    )


def session(number: int, rng: random.Random) -> Pending:
    slots = {"cpu": rng.choice([1, 2, 4]) * 1000, "mem": rng.choice([4, 8, 16]) * GIB}
    gpus = rng.choice([0, 0, 0, 1, 1])
    return Pending(
        SessionId(f"s-{number:06}"),
        KernelId(f"k-{number:06}"),
        revision=1,
        priority=10,
        created=NOW - 1_000_000 + number,
        retries=0,
        runtime="process",
        engine="custom",
        slots=slots | ({"cuda.device": gpus} if gpus else {}),
        user=USERS[number % len(USERS)],
        time_limit=rng.choice([None, 600_000_000, 7_200_000_000]),
    )


FILLED = {"all fit": (0.0, 0.0), "none fits": (1.0, 1.0), "mixed": (0.5, 1.0)}


def world(shape: str, pending: int, agents: int, seed: int = 1) -> Snapshot:
    """``pending`` sessions of twenty users with quotas, on ``agents`` agents."""
    rng = random.Random(seed)
    low, high = FILLED[shape]
    states = tuple(
        agent(n, rng.uniform(low, high) if low < high else low, rng) for n in range(agents)
    )
    waiting = tuple(session(number, rng) for number in range(pending))
    limits = {"cuda.device": 1_000_000, "cpu": 10**9}
    quotas = tuple(
        Quota("user", user, limits=limits, used={"cpu": 4000}, sessions=10**6, running=3)
        for user in USERS
    )

    return Snapshot("g", states, waiting, quotas)


def amounts(agent_state: AgentState) -> tuple[int, int, int]:
    gpus = sum(device.free == 1000 for device in agent_state.devices)
    return gpus, agent_state.free["cpu"], agent_state.free["mem"]


def asked(item: Pending) -> tuple[int, int, int]:
    return item.slots.get("cuda.device", 0), item.slots["cpu"], item.slots["mem"]


def dict_scan(states: Sequence[AgentState], items: Sequence[Pending]) -> list[int]:
    """A common implementation: amounts are Decimals in dicts, and each decision examines every
    agent, with new dicts for what remains. Returns the index of each session's agent, -1 for
    none."""
    capacity = [dict(zip(SLOTS, map(Decimal, amounts(state)), strict=True)) for state in states]
    occupied = [dict.fromkeys(SLOTS, Decimal(0)) for _ in states]
    chosen = []
    for item in items:
        request = dict(zip(SLOTS, map(Decimal, asked(item)), strict=True))
        fitting = []
        for number in range(len(states)):
            remaining = {slot: capacity[number][slot] - occupied[number][slot] for slot in SLOTS}
            if all(remaining[slot] >= request[slot] for slot in SLOTS):
                fitting.append(number)

        def rank(number: int, request: dict[str, Decimal] = request) -> tuple[object, ...]:
            remaining = {slot: capacity[number][slot] - occupied[number][slot] for slot in SLOTS}
            extras = bool(states[number].devices) and not request["cuda.device"]
            return extras, *(remaining[slot] for slot in SLOTS), number

        best = min(fitting, key=rank, default=-1)
        if best >= 0:
            for slot in SLOTS:
                occupied[best][slot] += request[slot]

        chosen.append(best)

    return chosen


C_SOURCE = """
#include <stdint.h>
/* free: agents x 3; asked: sessions x 3; gpu: agents; chosen: sessions. Examines every agent each time. */
void scan(int64_t *free, const int64_t *asked, const int8_t *gpu, int32_t *chosen, int agents, int sessions) {
  for (int s = 0; s < sessions; s++) {
    const int64_t *a = asked + 3 * s;
    int best = -1, extras = 0;
    for (int i = 0; i < agents; i++) {
      int64_t *f = free + 3 * i;
      if (f[0] < a[0] || f[1] < a[1] || f[2] < a[2]) continue;
      int e = gpu[i] && !a[0];
      if (best >= 0) {
        int64_t *b = free + 3 * best;
        if (e > extras) continue;
        if (e == extras) {
          if (f[0] > b[0]) continue;
          if (f[0] == b[0]) {
            if (f[1] > b[1]) continue;
            if (f[1] == b[1] && f[2] >= b[2]) continue;
          }
        }
      }
      best = i; extras = e;
    }
    chosen[s] = best;
    if (best >= 0) for (int k = 0; k < 3; k++) free[3 * best + k] -= a[k];
  }
}
"""


class CScan:
    """The same in C, compiled on this machine: the limit of examining every agent. False if there
    is no compiler."""

    def __init__(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        self._scan = None
        if compiler is None:
            return

        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "scan.c"
            library = Path(folder) / "scan.so"
            source.write_text(C_SOURCE)
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
            self._scan = ctypes.CDLL(str(library)).scan

    def __bool__(self) -> bool:
        return self._scan is not None

    def prepare(
        self, states: Sequence[AgentState], items: Sequence[Pending]
    ) -> tuple[ctypes.Array, ...]:
        free = [amount for state in states for amount in amounts(state)]
        requested = [amount for item in items for amount in asked(item)]
        return (
            (ctypes.c_int64 * len(free))(*free),
            (ctypes.c_int64 * len(requested))(*requested),
            (ctypes.c_int8 * len(states))(*(bool(state.devices) for state in states)),
            (ctypes.c_int32 * len(items))(),
        )

    def run(self, arrays: tuple[ctypes.Array, ...], agents: int, sessions: int) -> list[int]:
        assert self._scan is not None
        self._scan(*arrays, agents, sessions)
        return list(arrays[3])
