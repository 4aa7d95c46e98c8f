"""Diagnostics of a HEAppE site for ``moorage agent doctor``: what an agent with runtime heappe
needs.

The checks query the server and submit nothing. The tunnel can be tested only with a running job: if
this agent has one, its engine is queried.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from moorage.agent.runtimes.base import CreateFailed
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.construction import account_of, wanted_of
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.site import JobPlace, find_place, parameters
from moorage.agent.runtimes.heappe.tracked import TrackedJob, progress_of, target_of
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper
from moorage.common.aio.clock import Clock
from moorage.common.config.settings import AgentSettings
from moorage.common.model.errors import ConfigError
from moorage.server.doctor.checks import CheckResult

_KNOWN = ("6.3", "6.4", "6.5")
_CLOCK_S = 60.0
_ZONE_S = 900.0


async def check_heappe(agent: AgentSettings, state: Path, clock: Clock) -> list[CheckResult]:
    """Check server, credentials, project, template, clock, and the tunnel of a running job. Checks
    that depend on a failed check are skipped."""
    try:
        client = HeappeClient(account_of(agent), clock)
    except ConfigError as error:
        return [CheckResult("fail", "HEAppE settings", error.message, error.next_step)]

    try:
        return await _checks(client, agent, state, clock)
    finally:
        await client.close()


async def _checks(
    client: HeappeClient, agent: AgentSettings, state: Path, clock: Clock
) -> list[CheckResult]:
    try:
        version, time = await client.health()
        results = [_version(version, agent.heappe_url)]
        if time is not None:
            results.append(_clock(time, clock.now()))
    except HeappeFailed as error:
        return [_failed("HEAppE server", error)]

    try:
        projects = await client.projects()
        jobs = await client.jobs(tuple(sorted(wire.ACTIVE)))
    except HeappeFailed as error:
        return [*results, _failed("HEAppE credentials", error)]

    results.append(
        CheckResult("ok", "HEAppE credentials", f"{agent.heappe_user or 'token'} is known")
    )
    results.append(_project(agent.heappe_project, projects, clock.now()))
    if results[-1].status == "fail":
        return results

    try:
        place = find_place(
            wanted_of(agent), await client.node_types(agent.heappe_project, refresh=True)
        )
    except (HeappeFailed, CreateFailed) as error:
        next_step = error.next_step or "set agent.heappe_cluster, _node_type and _template"
        return [*results, CheckResult("fail", "HEAppE template", error.message or "", next_step)]

    results += [_template(place), await _cluster(client, place)]
    return results + await _tunnel(client, state, jobs, clock)


def _version(version: str, url: str) -> CheckResult:
    if version.lstrip("vV").startswith(_KNOWN):
        return CheckResult("ok", "HEAppE server", f"{url}, version {version}")
    detail = f"{url} has version {version or 'unknown'}; tested are {', '.join(_KNOWN)}"
    return CheckResult("warn", "HEAppE server", detail, "see docs/hpc.md before you rely on it")


def _project(wanted: str, projects: list[wire.Project], now: datetime) -> CheckResult:
    name = "HEAppE project"
    found = next((project for project in projects if project.accounting == wanted), None)
    if found is None:
        known = ", ".join(sorted(project.accounting for project in projects)) or "none"
        detail = f"this account has no project {wanted!r}; it has: {known}"
        return CheckResult(
            "fail", name, detail, "set agent.heappe_project, or ask the site for the project"
        )

    if found.end is None:
        return CheckResult("ok", name, wanted)

    if found.end <= now:
        return CheckResult(
            "fail", name, f"{wanted} ended on {found.end:%Y-%m-%d}", "ask the site to extend it"
        )

    return CheckResult("ok", name, f"{wanted}, until {found.end:%Y-%m-%d}")


def _template(place: JobPlace) -> CheckResult:
    template = place.template
    node_type = place.node_type
    detail = (
        f"{template.name} on {node_type.cluster}/{node_type.name}, walltime {place.walltime_s} s"
    )
    try:
        parameters(template, b"x")
    except CreateFailed:
        return CheckResult(
            "ok", "HEAppE template", f"{detail}, without parameters: arguments go by file"
        )

    return CheckResult("ok", "HEAppE template", detail)


async def _cluster(client: HeappeClient, place: JobPlace) -> CheckResult:
    """Check the cluster. This also shows that the server reaches the cluster, which its health
    endpoint does not show."""
    try:
        used, total = await client.used_nodes(place.node_type, place.project.id)
    except HeappeFailed as error:
        return _failed("HEAppE cluster", error)
    return CheckResult(
        "ok", "HEAppE cluster", f"{used} of {total} nodes of {place.node_type.name} are in use"
    )


def _clock(time: datetime, now: datetime) -> CheckResult:
    """Check the clock. The server may report its time in any zone; zone offsets are multiples of 15
    minutes."""
    ahead_s = (time - now).total_seconds()
    ahead_s -= round(ahead_s / _ZONE_S) * _ZONE_S
    detail = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this node"
    if abs(ahead_s) > _CLOCK_S:
        return CheckResult(
            "warn", "HEAppE clock", detail, "set this node's: timedatectl set-ntp true"
        )
    return CheckResult("ok", "HEAppE clock", detail)


async def _tunnel(
    client: HeappeClient, state: Path, jobs: list[wire.HeappeJob], clock: Clock
) -> list[CheckResult]:
    name = "HEAppE tunnel"
    running = {job.id: job for job in jobs if job.state is wire.JobState.RUNNING}
    records = JobRecords(state / "heappe").load().values()
    record = next(
        (record for record in records if record.serves and record.job_id in running), None
    )
    if record is None:
        detail = "no model of this agent is running: the tunnel is tested with the first one"
        return [CheckResult("ok", name, detail)]

    job = TrackedJob(record)
    try:
        target = await target_of(client, job, await progress_of(client, job))
        if target is None:
            return [CheckResult("ok", name, f"{record.name} is not listening yet")]

        keeper = TunnelKeeper(client, record.task_id, target, clock)
        await keeper.check(0)
    except HeappeFailed as error:
        return [_failed(name, error)]

    if keeper.problem:
        return [CheckResult("fail", name, keeper.problem, "see docs/hpc.md, Faults")]

    return [CheckResult("ok", name, f"the engine of {record.name} answers")]


def _failed(name: str, error: HeappeFailed) -> CheckResult:
    next_step = error.next_step or "ask the site"
    return CheckResult("fail", name, error.message or "", next_step)
