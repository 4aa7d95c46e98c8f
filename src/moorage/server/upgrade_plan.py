"""Plan of a rolling upgrade: the restarts in order, and the risks. Pure.

``facts`` are read by ``manager/store/platform/upgrade_facts.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from moorage.common.model.addresses import split_address
from moorage.common.model.versions import incompatibility
from moorage.manager.store.schema.baseline import RELEASE_BEFORE
from moorage.manager.store.schema.migration_locks import Migration
from moorage.server.doctor.checks import CheckResult

Part = Literal["database", "manager", "proxy", "agent"]
UNKNOWN = "unknown"
_DAY_S = 86_400
# From this many rows on, building an index or changing every row takes long enough to plan for.
_MANY_ROWS = 1_000_000
_NAMED = 5
_MANAGER_EFFECT = "agents and proxies switch to another manager; programs and models keep running"
_ALONE_EFFECT = (
    "nothing new starts and the API is down until it is back; programs and models keep running"
)


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One step. ``subjects``: the managers, proxies or agents. ``where``: the host, or a
    description of the hosts. ``versions``: their current versions. ``effect``: the effect on users
    during the step."""

    part: Part
    subjects: tuple[str, ...]
    action: str
    where: str
    versions: tuple[str, ...]
    commands: tuple[str, ...]
    effect: str


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """The plan. ``problems``: a "fail" must be resolved before the first step; a "warn" is a risk.
    ``oldest_beside``: the oldest release whose managers can run beside this one."""

    version: str
    oldest_beside: str
    revision: str | None
    newest_revision: str
    migrations: tuple[Migration, ...]
    problems: tuple[CheckResult, ...]
    steps: tuple[UpgradeStep, ...]


def plan_upgrade(
    facts: Mapping[str, Any],
    migrations: Sequence[Migration],
    *,
    version: str,
    oldest_schema: str,
    newest_revision: str,
    compatible_since: str,
    proxy_versions: Mapping[str, str],
) -> UpgradePlan:
    """Plan an upgrade. ``migrations``: the ones that the database needs. ``version`` and
    ``newest_revision``: those of this release and its schema. ``oldest_schema``: the oldest that it
    can upgrade. ``compatible_since``: the oldest schema whose managers can start on it.
    ``proxy_versions``: the known versions by name."""
    problems = [*_schema_problems(facts["revision"], oldest_schema, newest_revision)]
    steps: list[UpgradeStep] = []
    if not problems:
        problems = [
            *_problems(facts, migrations, version, proxy_versions),
            *_way_back(facts["revision"], migrations, compatible_since),
        ]
        steps = [
            *_database_steps(facts, migrations, version),
            *_manager_steps(facts["managers"], version, pending=bool(migrations)),
            *_proxy_steps(facts["managers"], version, proxy_versions),
            *_agent_steps(facts["agents"], version),
        ]

    return UpgradePlan(
        version,
        oldest_beside(version),
        revision=facts["revision"],
        newest_revision=newest_revision,
        migrations=tuple(migrations),
        problems=tuple(problems),
        steps=tuple(steps),
    )


def oldest_beside(version: str) -> str:
    """The oldest release whose managers, proxies and agents work with managers of ``version``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return f"{match[1]}.{max(int(match[2]) - 1, 0)}" if match else version


def _schema_problems(revision: str | None, oldest: str, newest: str) -> Iterator[CheckResult]:
    if revision is None:
        next_step = (
            "start a manager with `moorage manager`, or check manager.dsn if one should be running"
        )
        yield CheckResult(
            "fail", "schema", "the database is empty: there is nothing to upgrade", next_step
        )
    elif not revision.isdigit():
        next_step = "run `moorage db restore FILE --overwrite` again, or `moorage db recover`"
        yield CheckResult(
            "fail", "schema", "the restore of this database was not finished", next_step
        )
    elif revision > newest:
        detail = f"{revision} is newer than {newest} of this release"
        next_step = "run `moorage upgrade plan` of the release that created it, or a newer one"
        yield CheckResult("fail", "schema", detail, next_step)
    elif revision < oldest:
        detail = f"{revision} is older than {oldest}, where the migrations of this release begin"
        next_step = f"upgrade to Moorage at commit {RELEASE_BEFORE} first (docs/upgrades.md)"
        yield CheckResult("fail", "schema", detail, next_step)


def _problems(
    facts: Mapping[str, Any],
    migrations: Sequence[Migration],
    version: str,
    proxy_versions: Mapping[str, str],
) -> Iterator[CheckResult]:
    managers = facts["managers"]
    agents = facts["agents"]
    yield from _version_problems(
        "managers", {m["link"]: m["version"] for m in managers}, version, migrations
    )
    yield from _version_problems("proxies", proxy_versions, version, ())
    yield from _version_problems("agents", {a["id"]: a["version"] for a in agents}, version, ())

    if len(managers) == 1 and (migrations or managers[0]["version"] != version):
        next_step = "start a second manager first, on the same manager.dsn"
        yield CheckResult(
            "warn", "managers", "there is only one: nothing new starts while it restarts", next_step
        )

    proxies = _proxies(managers)
    if len(proxies) == 1 and proxy_versions.get(proxies[0]) != version:
        next_step = "set proxy.workers and reload it, or start a second proxy"
        yield CheckResult(
            "warn", "proxies", "there is only one: requests fail while it restarts", next_step
        )

    if migrations:
        yield from _migration_problems(facts, migrations)

    away = [agent["id"] for agent in agents if not agent["connected"]]
    if away:
        next_step = "upgrade each before it starts again; see `moorage agents`"
        yield CheckResult("warn", "agents", f"not connected: {_names(away)}", next_step)


def _version_problems(
    what: str, found: Mapping[str, str], version: str, migrations: Sequence[Migration]
) -> Iterator[CheckResult]:
    """Problems with components that run neither this release nor the previous one."""
    odd = {
        name: now for name, now in found.items() if now != UNKNOWN and incompatibility(version, now)
    }
    newer = [name for name, now in odd.items() if "newer" in incompatibility(version, now)]
    older = [name for name in odd if name not in newer]
    kind: Literal["fail", "warn"] = "fail" if what == "managers" else "warn"
    if newer:
        next_step = "run `moorage upgrade plan` of the newest release among them"
        yield CheckResult(kind, what, f"newer than {version}: {_names(newer)}", next_step)

    if older:
        detail = f"more than one minor version behind {version}: {_names(older)}"
        contracts = [migration.revision for migration in migrations if migration.kind == "contract"]
        if contracts:
            detail += f"; migration {', '.join(contracts)} removes objects that they use"

        next_step = f"upgrade them to {oldest_beside(version)} first"
        if what == "managers":
            next_step += ", or stop all managers before the migration"

        yield CheckResult(kind, what, detail, next_step)


def _migration_problems(
    facts: Mapping[str, Any], migrations: Sequence[Migration]
) -> Iterator[CheckResult]:
    taken_at = facts["backup_at"]
    if taken_at is None or facts["now"] - taken_at > _DAY_S:
        age = (
            "none is recorded"
            if taken_at is None
            else f"{(facts['now'] - taken_at) / _DAY_S:.0f} days old"
        )
        yield CheckResult("warn", "backup", f"the last one: {age}", "take one now: step 1")

    locked = {lock.table for migration in migrations for lock in migration.locks}
    large = [
        f"{table} ({rows:,} rows)"
        for table, rows in facts["rows"].items()
        if rows >= _MANY_ROWS and table in locked
    ]
    if large:
        detail = (
            f"{_names(large)}: the lock is held while an index is built or every row is changed"
        )
        next_step = "choose a quiet hour; try it on a copy: `moorage db restore` with another --dsn"
        yield CheckResult("warn", "locks", detail, next_step)

    for transaction in facts["transactions"]:
        detail = (
            f"a transaction of {transaction['user']} has been open for {transaction['age_s']:.0f} "
            "s: migrations wait for it"
        )
        next_step = f"let it end, or in psql: SELECT pg_terminate_backend({transaction['pid']})"
        yield CheckResult("warn", "locks", detail, next_step)


def _way_back(
    revision: str, migrations: Sequence[Migration], compatible_since: str
) -> Iterator[CheckResult]:
    if migrations and revision < compatible_since:
        detail = (
            "managers of the previous release keep running after the migration, "
            "but cannot start again"
        )
        next_step = "the only way back is `moorage db restore FILE --overwrite` with that release"
        yield CheckResult("warn", "way back", detail, next_step)
    elif migrations:
        detail = (
            "managers of the previous release keep running after the migration and can start, but "
            "cannot become leader"
        )
        yield CheckResult(
            "ok", "way back", detail, "run `moorage db downgrade` before you return to that release"
        )


def _database_steps(
    facts: Mapping[str, Any], migrations: Sequence[Migration], version: str
) -> Iterator[UpgradeStep]:
    if not migrations:
        return

    file = f"/backups/moorage-before-{version}.dump"
    yield UpgradeStep(
        "database",
        (),
        action="back up",
        where="where a manager runs",
        versions=(),
        commands=(f"moorage db backup {file}", f"moorage db verify {file}"),
        effect="none",
    )
    effect = (
        "the migration waits up to 3 s for each lock, 20 times, and blocks statements on that "
        "table while it waits; the leader keeps running, but no manager of the previous release "
        "can take over"
    )
    yield UpgradeStep(
        "database",
        (),
        action=f"migrate the schema {facts['revision']} → {migrations[-1].revision}",
        where="where this release is installed",
        versions=(),
        commands=("moorage db upgrade",),
        effect=effect,
    )


def _manager_steps(
    managers: Sequence[Mapping[str, Any]], version: str, *, pending: bool
) -> Iterator[UpgradeStep]:
    """Standbys come first, so that the leader then hands over to a manager of this release."""
    old = [manager for manager in managers if pending or manager["version"] != version]
    effect = _MANAGER_EFFECT if len(managers) > 1 else _ALONE_EFFECT
    for manager in sorted(old, key=lambda manager: bool(manager["leads"])):
        action = "install and restart a standby"
        if manager["leads"]:
            action = "install and restart the leader" + (
                ": it resigns first" if len(managers) > 1 else ""
            )

        commands = ("systemctl restart moorage-manager", "moorage managers")
        host = split_address(manager["link"])[0]
        yield UpgradeStep(
            "manager",
            (manager["link"],),
            action=action,
            where=host,
            versions=(manager["version"],),
            commands=commands,
            effect=effect,
        )


def _proxy_steps(
    managers: Sequence[Mapping[str, Any]], version: str, proxy_versions: Mapping[str, str]
) -> Iterator[UpgradeStep]:
    names = _proxies(managers)
    for name in names:
        if (now := proxy_versions.get(name, UNKNOWN)) == version:
            continue

        effect = (
            "it accepts no new connections, and finishes requests for up to proxy.drain_timeout_s"
        )
        if len(names) == 1:
            effect += "; with proxy.workers use `systemctl reload moorage-proxy`: no request fails"

        commands = ("systemctl restart moorage-proxy", "moorage peers")
        yield UpgradeStep(
            "proxy",
            (name,),
            action="install, drain and restart",
            where=f"host of {name}",
            versions=(now,),
            commands=commands,
            effect=effect,
        )


def _agent_steps(agents: Sequence[Mapping[str, Any]], version: str) -> Iterator[UpgradeStep]:
    """One step for all agents, because each is restarted in the same way, one or a few at a
    time."""
    old = [agent for agent in agents if agent["version"] != version]
    if not old:
        return

    kernels = sum(agent["kernels"] for agent in old)
    effect = (
        f"{kernels} kernels keep running and are adopted, unless agent.stop_kernels_on_exit is "
        "set; nothing is placed on an agent while it is down"
    )
    commands = ("moorage agent doctor", "systemctl restart moorage-agent", "moorage agents -o wide")
    yield UpgradeStep(
        "agent",
        tuple(agent["id"] for agent in old),
        action="install and restart, a few at a time",
        where="each node",
        versions=tuple(sorted({agent["version"] for agent in old})),
        commands=commands,
        effect=effect,
    )


def _proxies(managers: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({name for manager in managers for name in manager["proxies"]})


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def plan_lines(plan: UpgradePlan) -> Iterator[str]:
    """The plan as text."""
    schema = plan.newest_revision
    if plan.revision != schema:
        schema = f"{plan.revision} → {schema}"

    yield f"upgrade to {plan.version}, schema {schema}"
    yield f"managers, proxies and agents of {plan.oldest_beside} and later work beside it"
    for problem in plan.problems:
        yield f"{problem.status:<7} {problem.name}: {problem.detail}"
        if problem.next_step:
            yield f"{'':8}→ {problem.next_step}"

    if any(problem.status == "fail" for problem in plan.problems):
        yield "not safe: resolve the failures first"
    elif not plan.steps:
        yield "nothing to do: all known components run this release"

    for number, step in enumerate(plan.steps, 1):
        versions = f", {' and '.join(step.versions)} → {plan.version}" if step.versions else ""
        subjects = f" {_names(step.subjects)}" if step.subjects else ""
        yield f"{number:>3}. {step.part}{subjects}{versions}: {step.action}"
        yield f"     on {step.where}:" if step.part == "manager" else f"     {step.where}:"
        yield from (f"       {command}" for command in step.commands)
        if step.commands == ("moorage db upgrade",):
            yield from _migration_lines(plan.migrations)

        yield f"          effect: {step.effect}"


def _migration_lines(migrations: Sequence[Migration]) -> Iterator[str]:
    for migration in migrations:
        locks = (
            ", ".join(f"{lock.table} ({lock.blocks})" for lock in migration.locks)
            or "no table that exists"
        )
        yield f"       {migration.revision} {migration.kind:<8} {migration.title}; locks: {locks}"
