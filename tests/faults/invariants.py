"""The invariants after the faults, each with the number of objects checked and the violations."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import pairwise

import asyncpg

from moorage.agent.runtimes.batch import kernel_part
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.common.views.resources import HistoryEntry, SessionView
from moorage.sdk import Client
from tests.e2e.harness import kernels_below

from .account import Account, Charge
from .cluster import SITE_AGENT, Cluster
from .cluster_sessions import failed_by_sub, latest_kernels, main_kernel, wrong_kernels
from .excuses import InjectedFault, SessionEnd, is_excused, met_fault
from .findings import Invariant
from .load import REPLICAS, SITE_MODEL, Load, Request
from .site import SITE
from .site_truth import (
    calls_allowed,
    charged_wrongly_at_site,
    jobs_allowed,
    most_alive,
    outlived,
    strangers,
)

# Reasons that a fault can cause. Each names the fault, and none claims that the program exited.
FAULT_REASONS = frozenset({Reason.AGENT_LOST, Reason.KERNEL_GONE, Reason.START_TIMEOUT})
# Possible outcomes when a site cancels a job or calls it failed: its walltime is nearly as short as
# the lag of a site's database, within which a failure is taken for the end of the walltime.
SITE_REASONS = FAULT_REASONS | {Reason.CREATE_FAILED, Reason.WALLTIME, Reason.KILLED}


async def all_sessions(client: Client) -> list[SessionView]:
    return await client.sessions.list()


async def check_invariants(
    cluster: Cluster, load: Load, injected: list[InjectedFault]
) -> tuple[list[Invariant], Counter[str]]:
    """Every invariant, and the number of sessions by how they ended."""
    accounted, account = await _check_account(cluster, load)
    steps = account.step_sessions

    async with cluster.client(60) as client:
        sessions = await all_sessions(client)
        histories = {s.id: await client.sessions.history(s.id) for s in sessions}
        agents = await client.agents.list()

    started = [line.split()[0] for line in load.started_kernels.read_text().splitlines()]
    session_ids = {s.id for s in sessions}
    names = Counter(s.name for s in sessions)
    requested = [s for s in sessions if s.name in load.requests]
    allocated = [
        f"{a.id} {o.slot} {o.device_id}: {o.used}" for a in agents for o in a.offers if o.used
    ]
    running = [f"{pid}: {kernel}" for pid, kernel in kernels_below(cluster.home).items()]
    gaps = [f"{s.name}: {gap}" for s in sessions if (gap := history_gap(s, histories[s.id]))]
    ran = frozenset(started)
    wrong = _wrong_results(load, requested, histories, ran)
    unexcused = _unexcused(load, sessions, histories, injected)
    drift = await _db_check(cluster)
    invariants = [
        Invariant(
            "an acknowledged session exists",
            len(load.acknowledged),
            [
                f"{name} ({ref})"
                for ref, name in load.acknowledged.items()
                if ref not in session_ids
            ],
        ),
        Invariant(
            "a session is created once, and only on request",
            len(sessions),
            [f"{name} x{n}" for name, n in names.items() if n > 1]
            + [
                s.name
                for s in sessions
                if not (s.name in load.requests or s.endpoint or s.id in steps)
            ],
        ),
        Invariant(
            "every session has ended",
            len(sessions),
            [s.name for s in sessions if s.status not in TERMINAL],
        ),
        Invariant(
            "a kernel is started at most once",
            len(started),
            [f"{kernel} x{n}" for kernel, n in Counter(started).items() if n > 1],
        ),
        Invariant("no unordered kernel runs", len(started), running),
        Invariant(
            "no device and no share is leaked", sum(len(a.offers) for a in agents), allocated
        ),
        Invariant("a history has no gap and ends at the status", len(sessions), gaps),
        Invariant("results match the programs", len(requested), wrong),
        Invariant("a fault that is blamed has hit that agent", len(sessions), unexcused),
        Invariant("`moorage db check` finds no drift", 1, drift),
        Invariant(
            "a streamed response is complete or aborted",
            load.chats.total(),
            ["WRONG"] * load.chats["WRONG"],
        ),
        Invariant(
            "most streamed responses are complete", load.chats.total(), _failed_chats(load.chats)
        ),
        _check_shared_runs(sessions, ran),
        _check_clusters(load, requested),
        *_check_site(load, sessions, injected, account.site_charges),
        *accounted,
    ]
    ends = Counter(f"{s.status} {s.reason} {s.result}".replace(" UNDEFINED", "") for s in sessions)

    return invariants, ends


def _wrong_results(
    load: Load,
    requested: list[SessionView],
    histories: dict[str, list[HistoryEntry]],
    ran: frozenset[str],
) -> list[str]:
    found = {
        s.name: wrong_result(load.requests[s.name], s, histories[s.id], ran) for s in requested
    }
    return [f"{name}: {contradiction}" for name, contradiction in found.items() if contradiction]


def fault_reasons(request: Request | None) -> frozenset[Reason]:
    return SITE_REASONS if request is not None and request.kind == "job" else FAULT_REASONS


def _unexcused(
    load: Load,
    sessions: list[SessionView],
    histories: dict[str, list[HistoryEntry]],
    injected: list[InjectedFault],
) -> list[str]:
    claimed = [
        (s, end)
        for s in sessions
        if s.adopted_from is None
        and (end := claimed_fault(s, histories[s.id], fault_reasons(load.requests.get(s.name))))
    ]
    return [
        f"{s.name}: {end.reason} of {', '.join(sorted(end.agents))} at {end.ended_at:%H:%M:%S}"
        for s, end in claimed
        if not is_excused(end, injected)
    ]


def claimed_fault(
    session: SessionView, history: list[HistoryEntry], reasons: frozenset[Reason] = FAULT_REASONS
) -> SessionEnd | None:
    """How a session ended, if its reason claims a fault.

    A kernel of a lost agent may return after its session has ended, with its own outcome, so only
    the kernels that were then stopped still have the session's reason."""
    if session.reason not in reasons:
        return None

    placed = [entry.at for entry in history if entry.to_status is Status.SCHEDULED]
    kernels = latest_kernels(session)
    ended_at = history[-1].at
    blaming = [
        kernel
        for kernel in kernels
        if kernel.reason is session.reason or kernel.status_since > ended_at
    ] or kernels
    agents = frozenset(kernel.agent_id for kernel in blaming if kernel.agent_id is not None)

    return SessionEnd(session.reason, agents, placed[-1] if placed else history[0].at, ended_at)


async def _check_account(cluster: Cluster, load: Load) -> tuple[list[Invariant], Account]:
    """The account's findings, and the account with its data."""
    connection = await asyncpg.connect(cluster.env["MOORAGE_MANAGER__DSN"])
    try:
        account = Account(connection, SITE_AGENT)
        found = await account.check(load.started_kernels, load.ended_kernels, load.pipelines)
        return found, account
    finally:
        await connection.close()


def _check_shared_runs(sessions: list[SessionView], ran: frozenset[str]) -> Invariant:
    return Invariant(
        "what shares a run ran nothing itself, and ended as it",
        sum(s.adopted_from is not None for s in sessions),
        [f"{s.name}: {e}" for s in sessions if (e := wrongly_shared(s, sessions, ran))],
    )


def _check_clusters(load: Load, sessions: list[SessionView]) -> Invariant:
    """Check the kernels that exist: even a session that was never placed has some."""
    scripts = [
        (s, script) for s in sessions if (script := load.requests[s.name].cluster) is not None
    ]
    return Invariant(
        "kernels of a cluster are placed and end together",
        len(scripts),
        [f"{s.name}: {e}" for s, script in scripts if (e := wrong_kernels(script, s))],
    )


def _check_site(
    load: Load, sessions: list[SessionView], injected: list[InjectedFault], charges: list[Charge]
) -> list[Invariant]:
    site = load.cluster.site
    if site is None:
        return []

    jobs = site.jobs()
    kernels = {
        kernel_part(KernelId(k.id)) for s in sessions if s.endpoint == SITE_MODEL for k in s.kernels
    }
    of_model = [job for job in jobs if job.kernel in kernels]

    # A replica has a successor when it ends, and a replacement while its agent is silent.
    most = most_alive(of_model)
    allowed = 3 * REPLICAS
    losses = sum(each.fault.component in (SITE, SITE_AGENT) for each in injected)
    bound = jobs_allowed(REPLICAS, site.lasted_s, site.walltime_s, losses)
    chats = load.site_chats
    calls = site.server.calls.total()
    most_calls = calls_allowed(site.lasted_s, chats.total(), len(jobs))

    return [
        Invariant(
            "a kernel has one job at the site, which runs once",
            len(jobs),
            strangers(jobs, sessions),
        ),
        Invariant("a session ends after its job at the site", len(jobs), outlived(jobs, sessions)),
        Invariant("nothing is left at the site", len(jobs), site.left()),
        Invariant(
            "a job is charged as its site ran it",
            len(charges),
            charged_wrongly_at_site(charges, jobs, site.walltime_s),
        ),
        Invariant(
            "replicas have no more jobs than stand in for them",
            len(of_model),
            [f"{most} at once, and {allowed} are allowed"] * (most > allowed),
        ),
        Invariant(
            "successors cost a bounded number of jobs",
            len(of_model),
            [f"{len(of_model)} in {site.lasted_s:.0f} s, and {bound} are allowed"]
            * (len(of_model) > bound),
        ),
        Invariant(
            "calls to the site are bounded",
            calls,
            [f"{calls} in {site.lasted_s:.0f} s, and {most_calls} are allowed"]
            * (calls > most_calls),
        ),
        Invariant(
            "a response streamed from the site is complete or aborted",
            chats.total(),
            ["WRONG"] * chats["WRONG"],
        ),
        Invariant(
            "most responses streamed from the site are complete",
            chats.total(),
            _failed_chats(chats),
        ),
        Invariant(
            "a stream from the site fails for a fault only",
            chats.total(),
            _unexplained(load, injected),
        ),
    ]


def _unexplained(load: Load, injected: list[InjectedFault]) -> list[str]:
    return [
        f"{each.began:%H:%M:%S} to {each.ended:%H:%M:%S}, {each.proxy}: {each.problem}"
        for each in load.failed_at_site
        if not met_fault(each.began, each.ended, (SITE, SITE_AGENT, each.proxy), injected)
    ]


def wrongly_shared(session: SessionView, sessions: list[SessionView], ran: frozenset[str]) -> str:
    """What is wrong with a session that shares a run, or "" if nothing is."""
    owner = next((s for s in sessions if s.id == session.adopted_from), None)
    if owner is None or session.reason is Reason.USER_REQUESTED:
        return ""
    if started := [k.id for k in session.kernels if k.id in ran]:
        return f"shares the run of {owner.name}, and has started {started}"

    if (session.status, session.result) != (owner.status, owner.result):
        return (
            f"{session.status} {session.result}, and {owner.name} is {owner.status} {owner.result}"
        )

    return ""


def _failed_chats(chats: Counter[str]) -> list[str]:
    """Chats run against proxies and replicas that are killed and paused in turn, yet most must
    succeed."""
    complete = chats["complete"]
    return (
        []
        if complete > chats.total() / 2
        else [f"{complete} of {chats.total()} are complete: {dict(chats)}"]
    )


def history_gap(session: SessionView, history: list[HistoryEntry]) -> str:
    """The gap in a session's history, or "" if there is none."""
    if [e.revision for e in history] != list(range(1, session.revision + 1)):
        return f"revisions {[e.revision for e in history]} of a session at {session.revision}"
    if any(one.to_status is not two.from_status for one, two in pairwise(history)):
        return "a transition does not start at the status before it"

    return (
        ""
        if history[-1].to_status is session.status
        else f"the history ends at {history[-1].to_status}"
    )


def wrong_result(
    request: Request, session: SessionView, history: list[HistoryEntry], ran: frozenset[str]
) -> str:
    """The reported result of a session if it contradicts its script, otherwise ""."""
    kernel = main_kernel(session)
    reason = session.reason
    reported = (
        f"{session.status} {reason} {session.result} exit {kernel.exit_code} ({session.detail})"
    )
    not_started = [
        k.id
        for k in session.kernels
        if k.exit_code is not None and k.exit_code >= 0 and k.id not in ran
    ]
    if not_started:
        return f"kernels {not_started} have an exit code and were never started"
    if reason is Reason.USER_REQUESTED:
        return "" if session.result is Result.UNDEFINED else reported
    if request.kind == "job" and reason in SITE_REASONS:
        return "" if session.result is not Result.SUCCESS else reported

    if reason in FAULT_REASONS:
        return (
            ""
            if session.status is Status.ERROR and session.result is not Result.SUCCESS
            else reported
        )

    if request.kind == "lifetime":
        return (
            "" if (session.status, reason) == (Status.TERMINATED, Reason.MAX_LIFETIME) else reported
        )

    if request.kind == "timeout":
        correct = (session.result, reason) == (Result.FAILED, Reason.TIMEOUT)
    elif session.adopted_from is not None:
        correct = session.result is (Result.SUCCESS if request.code == 0 else Result.FAILED)
    elif request.cluster is not None and failed_by_sub(request.cluster, session, history):
        correct = session.requeues == request.retries
    elif request.cluster is not None and request.cluster.sub_end == "failure":
        correct = False
    elif request.code == 0:
        correct = (session.result, reason, kernel.exit_code) == (
            Result.SUCCESS,
            Reason.EXIT_ZERO,
            0,
        )
    else:
        failed = (Result.FAILED, Reason.EXIT_NONZERO, request.code, request.retries)
        correct = (session.result, reason, kernel.exit_code, session.requeues) == failed

    return "" if correct and session.status is Status.TERMINATED else reported


async def _db_check(cluster: Cluster) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "db", "check", "-o", "json",
        env=cluster.env, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return [f"{d['check']}: {d['subject']} {d['detail']}" for d in json.loads(out)]
