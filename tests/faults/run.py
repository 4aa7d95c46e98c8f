"""``python -m tests.faults.run --seconds 300``: the whole of it, and a table of what was counted."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from moorage.common.model.errors import MoorageError
from moorage.common.model.status import LIVE
from tests.e2e.harness import kernels_below, until

from .cluster import AGENTS, Cluster
from .invariants import Invariant, all_sessions, count
from .load import Load
from .network import CannotCut, Wire
from .schedule import Fault, lanes

SETTLE_S = 150.0


async def strike(cluster: Cluster, fault: Fault) -> None:
    """Do it, wait, and undo it: also when the time for faults is over in the middle of it."""
    cut = {"pull": cluster.wire and cluster.wire.pull, "choke": cluster.wire and cluster.wire.choke}.get(
        fault.kind
    )
    if fault.kind == "kill":
        cluster.kill(fault.part)
    elif fault.kind == "halt":
        cluster.halt(fault.part, signal.SIGSTOP)
    elif cut:
        cut(True)
    try:
        await asyncio.sleep(fault.for_s)
    finally:
        if fault.kind == "halt":
            cluster.halt(fault.part, signal.SIGCONT)
        elif cut:
            cut(False)
        elif fault.part != "postgres":
            cluster.start(fault.part)


async def lane(cluster: Cluster, faults: Iterator[Fault], done: Counter[str], began: float) -> None:
    for fault in faults:
        await asyncio.sleep(fault.after_s)
        print(f"{time.monotonic() - began:6.1f} s  {fault}", flush=True)
        done[f"{fault.kind} {fault.part}"] += 1
        await strike(cluster, fault)


async def settle(cluster: Cluster, load: Load) -> None:
    """No more faults: what has an end of its own ends, the rest is stopped, and nothing is left."""

    async def all_alive() -> bool:
        async with cluster.client() as client:
            return [a.status for a in await client.list_agents()] == ["ALIVE"] * len(AGENTS)

    async def live() -> list[str]:
        async with cluster.client(30) as client:
            return [s.id for s in await all_sessions(client) if s.status in LIVE and s.endpoint is None]

    async def ended() -> bool:
        async with cluster.client(30) as client:
            endless = {n for n, a in load.asked.items() if a.kind == "interactive"}
            for session in await all_sessions(client):
                if session.name in endless and session.status in LIVE:
                    await client.stop_session(session.id)
        return not await live()

    async def empty() -> bool:
        async with cluster.client() as client:
            used = [o for a in await client.list_agents() for o in a.offers if o.used]
        return not used and not await asyncio.to_thread(kernels_below, cluster.home)

    await until("all agents are alive again", all_alive, SETTLE_S)
    await until("every session has ended", ended, SETTLE_S)
    async with cluster.client(30) as client:
        await client.delete_endpoint("words")
    await until("nothing runs and nothing is held", empty, SETTLE_S)


async def play(home: Path, seed: int, seconds: float, per_s: float) -> list[Invariant]:
    """Everything, once. Prints what happens; returns the invariants."""
    wire, cuttable = _wire()
    cluster = Cluster(home, wire)
    load, done = Load(cluster, seed, per_s), Counter[str]()
    try:
        await cluster.start_all()
        await load.serve()
        began = time.monotonic()
        upper, lower = lanes(seed, cuttable)
        striking = [asyncio.create_task(lane(cluster, row, done, began)) for row in (upper, lower)]
        await load.run(seconds)
        for task in striking:
            task.cancel()
        for result in await asyncio.gather(*striking, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise RuntimeError("the faults ended before their time") from result
        freeze_startup_objects = time.monotonic()
        try:
            await settle(cluster, load)
        except AssertionError as error:
            print(f"NOT SETTLED: {error}")
        took = time.monotonic() - freeze_startup_objects
        found, ends = await count(cluster, load)
        dead = cluster.dead()
        found.append(Invariant("no part ended by itself", len(AGENTS) + 2, dead))
        _report(seed, seconds, took, load, done, ends, found)
        return found
    finally:
        cluster.close()
        if wire is not None:
            wire.close()


def _wire() -> tuple[Wire | None, frozenset[str]]:
    wire = Wire()
    try:
        wire.open()
    except CannotCut as error:
        print(f"SKIPPED: no connection is cut on this machine, since {error}", flush=True)
        return None, frozenset()
    if not wire.can_choke:
        print("SKIPPED: the wire is pulled but not choked: `tc` has no tbf here", flush=True)
    return wire, frozenset({"pull", "choke"} if wire.can_choke else {"pull"})


def _report(
    seed: int,
    seconds: float,
    settled_s: float,
    load: Load,
    done: Counter[str],
    ends: Counter[str],
    found: list[Invariant],
) -> None:
    print(f"\nseed {seed}, {seconds:g} s of faults, settled {settled_s:.1f} s after the last")
    for title, counter in (("faults", done), ("calls", load.calls), ("streams", load.chats), ("ends", ends)):
        print(f"{title:<8} {counter.total():>5}: " + ", ".join(f"{k} x{n}" for k, n in counter.most_common()))
    print(f"\n{'invariant':<55} {'looked at':>9} {'violations':>10}")
    for one in found:
        print(f"{one.name:<55} {one.looked_at:>9} {len(one.violations):>10}")
        for violation in one.violations[:10]:
            print(f"    {violation}")
    print(f"{sum(len(one.violations) for one in found)} violations", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=float, default=2.6, help="sessions created")
    parser.add_argument("--keep", action="store_true", help="keep the state directory, with all logs")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="moorage-faults-"))
    home.chmod(0o711)
    try:
        found = asyncio.run(play(home, given.seed, given.seconds, given.per_second))
    finally:
        if given.keep:
            print(f"state and logs: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    return 1 if any(one.violations for one in found) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MoorageError as error:
        sys.exit(str(error))
