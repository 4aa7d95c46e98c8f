"""Fault injection run: ``python -m tests.faults.run --seconds 300``. Prints the faults and a table
of invariants."""

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
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import MoorageError
from moorage.common.model.status import LIVE
from moorage.common.views.resources import SessionView
from moorage.manager.postgres import EmbeddedPostgres
from tests.e2e.harness import kernels_below, until

from . import account
from .cluster import Cluster
from .excuses import InjectedFault
from .findings import Invariant
from .invariants import all_sessions, check_invariants
from .load import Load
from .network import NetworkFaultsUnavailable, NetworkLink
from .schedule import Fault, fault_sequences
from .site import SITE, FaultySite

CONVERGE_S = 150.0
IN_DOUBT = "the answer to the submission was lost"


async def inject(cluster: Cluster, fault: Fault) -> None:
    """Apply the fault, wait, and undo it, also when cancelled in between."""
    if fault.component == SITE:
        await _inject_at_site(cluster, fault)
        return

    if fault.kind == "kill":
        cluster.kill(fault.component)
    elif fault.kind == "pause":
        cluster.send_signal(fault.component, signal.SIGSTOP)
    else:
        _set_network_fault(cluster, fault.kind, True)

    try:
        await asyncio.sleep(fault.duration_s)
    finally:
        if fault.kind == "pause":
            cluster.send_signal(fault.component, signal.SIGCONT)
        elif fault.kind != "kill":
            _set_network_fault(cluster, fault.kind, False)
        elif fault.component != "postgres":
            cluster.start(fault.component)


async def _inject_at_site(cluster: Cluster, fault: Fault) -> None:
    assert cluster.site is not None, "faults of the site are scheduled only if there is one"
    await cluster.site.begin(fault.kind)
    try:
        await asyncio.sleep(fault.duration_s)
    finally:
        await cluster.site.end(fault.kind)


def _set_network_fault(cluster: Cluster, kind: str, active: bool) -> None:
    assert cluster.network is not None, "network faults are scheduled only if there is a link"
    change = cluster.network.unplug if kind == "unplug" else cluster.network.throttle
    change(active)


async def inject_all(
    cluster: Cluster, faults: Iterator[Fault], injected: list[InjectedFault], started: float
) -> None:
    for fault in faults:
        await asyncio.sleep(fault.delay_s)
        began = datetime.now(UTC)
        position = len(injected)
        print(f"{time.monotonic() - started:6.1f} s  {began:%H:%M:%S} {fault}", flush=True)
        injected.append(InjectedFault(fault, began))

        try:
            await inject(cluster, fault)
        finally:
            injected[position] = InjectedFault(fault, began, datetime.now(UTC))


def is_in_doubt(session: SessionView) -> bool:
    """Wait ten minutes for a job whose submission was not answered: it may have run."""
    return any(kernel.detail.startswith(IN_DOUBT) for kernel in session.kernels)


async def converge(cluster: Cluster, load: Load) -> None:
    """After the faults, sessions that end by themselves do so, the others are stopped, and nothing
    remains."""

    async def all_alive() -> bool:
        async with cluster.client() as client:
            return [a.status for a in await client.agents.list()] == ["ALIVE"] * len(
                cluster.all_agents
            )

    async def all_ended() -> bool:
        async with cluster.client(30) as client:
            for session in await all_sessions(client):
                request = load.requests.get(session.name)
                is_endless = request is not None and request.kind == "interactive"
                if session.status in LIVE and (is_endless or is_in_doubt(session)):
                    await client.sessions.stop(session.id)
            sessions = await all_sessions(client)
        return not [s for s in sessions if s.status in LIVE and s.endpoint is None]

    async def nothing_remains() -> bool:
        async with cluster.client() as client:
            used = [o for a in await client.agents.list() for o in a.offers if o.used]
            live = [s for s in await all_sessions(client) if s.status in LIVE]

        left = cluster.site.left() if cluster.site else []
        return (
            not used
            and not live
            and not left
            and not await asyncio.to_thread(kernels_below, cluster.home)
        )

    await until("all agents are alive again", all_alive, CONVERGE_S)
    await until("every session has ended", all_ended, CONVERGE_S)
    async with cluster.client(30) as client:
        for endpoint in await client.endpoints.list():
            await client.endpoints.delete(endpoint.name)

    await until("nothing runs and nothing is allocated", nothing_remains, CONVERGE_S)


async def run(
    home: Path, seed: int, seconds: float, sessions_per_s: float, *, site: bool = True
) -> list[Invariant]:
    """One run. Prints the faults and a report; returns the invariants. ``site``: whether the run
    includes a site."""
    async with AsyncExitStack() as stack:
        network, network_faults = stack.enter_context(_open_network())
        # For two managers, and for managers that died without closing their connections.
        more = {"max_connections": "200"}
        postgres = EmbeddedPostgres(home / "postgres", clock=SystemClock(), extra=more)
        await stack.enter_async_context(postgres)
        faulty_site = FaultySite(seed) if site else None
        if faulty_site is not None:
            stack.push_async_callback(faulty_site.stop)
            await faulty_site.start()

        cluster = Cluster(home, postgres, network, faulty_site)
        stack.callback(cluster.close)
        return await _run(cluster, Load(cluster, seed, sessions_per_s), seconds, network_faults)


async def _run(
    cluster: Cluster, load: Load, seconds: float, network_faults: frozenset[str]
) -> list[Invariant]:
    await cluster.start_all()
    await account.begin(cluster.env["MOORAGE_MANAGER__DSN"])
    await load.create_endpoints()
    injected: list[InjectedFault] = []
    started = time.monotonic()
    sequences = fault_sequences(load.seed, network_faults, cluster.site is not None)
    tasks = [
        asyncio.create_task(inject_all(cluster, faults, injected, started)) for faults in sequences
    ]
    await load.run(seconds)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError):
            raise RuntimeError("fault injection failed before the end of the run") from result

    faults_ended = time.monotonic()
    not_converged = []
    try:
        await converge(cluster, load)
    except AssertionError as error:
        not_converged.append(str(error))

    converged_s = time.monotonic() - faults_ended
    invariants, ends = await check_invariants(cluster, load, injected)
    invariants.append(Invariant("the platform converges after the faults", 1, not_converged))
    components = len(cluster.components)
    invariants.append(Invariant("no component exits on its own", components, cluster.exited()))
    print_report(load, seconds, converged_s, injected, ends=ends, invariants=invariants)

    return invariants


@contextmanager
def _open_network() -> Iterator[tuple[NetworkLink | None, frozenset[str]]]:
    """The link and the faults that it supports, or no link if none can be created."""
    network = NetworkLink()
    try:
        network.open()
    except NetworkFaultsUnavailable as error:
        print(f"SKIPPED: no network faults on this machine: {error}", flush=True)
        yield None, frozenset()
        return

    if not network.can_throttle:
        print(
            "SKIPPED: the network is unplugged but not throttled: `tc` has no tbf here", flush=True
        )

    try:
        yield network, frozenset({"unplug", "throttle"} if network.can_throttle else {"unplug"})
    finally:
        network.close()


def print_report(
    load: Load,
    seconds: float,
    converged_s: float,
    injected: list[InjectedFault],
    *,
    ends: Counter[str],
    invariants: list[Invariant],
) -> None:
    print(
        f"\nseed {load.seed}, {seconds:g} s of faults, converged {converged_s:.1f} s after the last"
    )
    kinds = Counter(f"{each.fault.kind} {each.fault.component}" for each in injected)
    counters = [("faults", kinds), ("calls", load.calls), ("streams", load.chats), ("ends", ends)]
    if load.cluster.site is not None:
        counters[3:3] = [("site", load.site_chats), ("HEAppE", load.cluster.site.server.calls)]

    for title, counter in counters:
        print(
            f"{title:<8} {counter.total():>5}: "
            + ", ".join(f"{k} x{n}" for k, n in counter.most_common())
        )

    for failed in load.failed_at_site:
        span = f"{failed.began:%H:%M:%S} to {failed.ended:%H:%M:%S}"
        print(
            f"failed at the site, {span}, {failed.proxy}, after {failed.pieces} pieces: {failed.problem}"
        )

    print(f"\n{'invariant':<55} {'checked':>9} {'violations':>10}")
    for invariant in invariants:
        print(f"{invariant.name:<55} {invariant.checked:>9} {len(invariant.violations):>10}")
        for violation in invariant.violations[:10]:
            print(f"    {violation}")

    print(f"{sum(len(invariant.violations) for invariant in invariants)} violations", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=float, default=2.6, help="rate of new sessions")
    parser.add_argument(
        "--no-site", action="store_true", help="without the HEAppE site, its agent and model"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the state directory with all logs, as after a violation",
    )
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="moorage-faults-"))
    home.chmod(0o711)
    holds = False
    try:
        invariants = asyncio.run(
            run(home, options.seed, options.seconds, options.per_second, site=not options.no_site)
        )
        holds = not any(invariant.violations for invariant in invariants)
    finally:
        if options.keep or not holds:
            print(f"state and logs: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)

    return 0 if holds else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MoorageError as error:
        sys.exit(str(error))
