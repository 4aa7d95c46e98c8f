"""What must hold when the faults are over, each with how much was looked at and what broke it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.common.views.resources import HistoryEntry, SessionView
from moorage.sdk import Client
from tests.e2e.harness import kernels_below

from .cluster import Cluster
from .load import Asked, Load

# Ends that a fault may cause; each names its cause, and no program is said to have done what it did not do.
EXCUSED = frozenset({Reason.AGENT_LOST, Reason.KERNEL_GONE, Reason.START_TIMEOUT})


@dataclass
class Invariant:
    name: str
    looked_at: int
    violations: list[str] = field(default_factory=list)


async def all_sessions(client: Client) -> list[SessionView]:
    found: list[SessionView] = []
    cursor: str | None = None
    while True:
        page = await client.list_sessions(cursor=cursor, limit=500)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


async def count(cluster: Cluster, load: Load) -> tuple[list[Invariant], Counter[str]]:
    """Every invariant, and how sessions ended."""
    async with cluster.client(60) as client:
        sessions = await all_sessions(client)
        stories = {s.id: await client.history(s.id) for s in sessions}
        agents = await client.list_agents()
    ran = [line.split()[0] for line in load.lines.read_text().splitlines()]
    known = {s.id: s for s in sessions}
    names = Counter(s.name for s in sessions)
    ours = [s for s in sessions if s.name in load.asked]
    held = [f"{a.id} {o.slot} {o.device_id}: {o.used}" for a in agents for o in a.offers if o.used]
    left = {} if not (k := kernels_below(cluster.home)) else k
    told = [f"{s.name}: {broken}" for s in sessions if (broken := untold(s, stories[s.id]))]
    lies = [f"{s.name}: {lie}" for s in ours if (lie := untrue(load.asked[s.name], s, frozenset(ran)))]
    checks = await _db_check(cluster)
    found = [
        Invariant(
            "an acknowledged session is there",
            len(load.acknowledged),
            [f"{name} ({ref})" for ref, name in load.acknowledged.items() if ref not in known],
        ),
        Invariant(
            "a session is made once, and only if it was asked for",
            len(sessions),
            [f"{name} x{n}" for name, n in names.items() if n > 1]
            + [s.name for s in sessions if s.name not in load.asked and s.endpoint is None],
        ),
        Invariant(
            "a session has ended", len(sessions), [s.name for s in sessions if s.status not in TERMINAL]
        ),
        Invariant(
            "a kernel runs once", len(ran), [f"{kernel} x{n}" for kernel, n in Counter(ran).items() if n > 1]
        ),
        Invariant(
            "nothing runs that nobody wants", len(ran), [f"{pid}: {kernel}" for pid, kernel in left.items()]
        ),
        Invariant("no device and no share is leaked", sum(len(a.offers) for a in agents), held),
        Invariant("a history has no gap and ends at the status", len(sessions), told),
        Invariant("results are true", len(ours), lies),
        Invariant("`moorage db check` finds no drift", 1, checks),
        Invariant(
            "a streamed answer is whole or broken off", load.chats.total(), ["WRONG"] * load.chats["WRONG"]
        ),
    ]
    ends = Counter(f"{s.status} {s.reason} {s.result}".replace(" UNDEFINED", "") for s in sessions)
    return found, ends


def untold(session: SessionView, story: list[HistoryEntry]) -> str:
    """What is wrong with its history; "" if nothing is."""
    if [e.revision for e in story] != list(range(1, session.revision + 1)):
        return f"revisions {[e.revision for e in story]} of a session at {session.revision}"
    if any(one.to_status is not two.from_status for one, two in pairwise(story)):
        return "a step begins where the one before did not end"
    return "" if story[-1].to_status is session.status else f"it ends at {story[-1].to_status}"


def untrue(asked: Asked, session: SessionView, ran: frozenset[str]) -> str:
    """What the platform says of a session that its script contradicts; "" if nothing."""
    kernel, reason = session.kernels[-1], session.reason
    said = f"{session.status} {reason} {session.result} exit {kernel.exit_code} ({session.detail})"
    liars = [
        k.id for k in session.kernels if k.exit_code is not None and k.exit_code >= 0 and k.id not in ran
    ]
    if liars:
        return f"kernels {liars} have an exit code and never ran"
    if reason is Reason.USER_REQUESTED:
        return "" if session.result is Result.UNDEFINED else said
    if reason in EXCUSED:
        return "" if session.status is Status.ERROR and session.result is not Result.SUCCESS else said
    if asked.kind == "lifetime":
        return "" if (session.status, reason) == (Status.TERMINATED, Reason.MAX_LIFETIME) else said
    if asked.kind == "timeout":
        true = (session.result, reason) == (Result.FAILED, Reason.TIMEOUT)
    elif asked.code == 0:
        true = (session.result, reason, kernel.exit_code) == (Result.SUCCESS, Reason.EXIT_ZERO, 0)
    else:
        true = (session.result, reason, kernel.exit_code) == (Result.FAILED, Reason.EXIT_NONZERO, asked.code)
        true = true and session.requeues == asked.retries
    return "" if true and session.status is Status.TERMINATED else said


async def _db_check(cluster: Cluster) -> list[str]:
    state = cluster.home / "postgres"
    password, port = (state / "password").read_text(), (state / "port").read_text().strip()
    dsn = f"postgresql://moorage:{password}@127.0.0.1:{port}/postgres"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "db", "check", "-o", "json",
        env=cluster.env | {"MOORAGE_MANAGER__DSN": dsn}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return [f"{d['check']}: {d['subject']} {d['detail']}" for d in json.loads(out)]
