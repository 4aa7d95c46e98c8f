"""Checks an installation for single points of failure and neglected maintenance. Pure.

``facts`` are read by ``manager/store/platform/sql/cluster_facts.sql``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from moorage.common.model.addresses import is_dial_out_host, is_loopback, split_address
from moorage.common.model.versions import incompatibility
from moorage.manager.workloads import charge_warnings
from moorage.server.doctor.checks import CheckResult, Status

# The most connections that one manager opens to Postgres, as in docs/configuration.md.
CONNECTIONS_OF_MANAGER = 40
_DAY_S = 86_400
# Ages of backups and of their tests: above the first, there is a warning; above the second, a
# failure.
_BACKUP_WARN_S = 1.5 * _DAY_S
_BACKUP_FAIL_S = 8 * _DAY_S
_TEST_WARN_S = 92 * _DAY_S
# The same limits as for an agent (``checks.clock``), but between any two managers.
_CLOCK_WARN_S = 5.0
_CLOCK_FAIL_S = 300.0
_RENEWAL_OVERDUE_S = 14 * _DAY_S
_NAMED = 5


def check_cluster(
    facts: Mapping[str, Any], *, version: str, revision: str, embedded: bool, hosts: Sequence[str]
) -> list[CheckResult]:
    """Check an installation. ``version`` and ``revision``: those of this release and its schema.
    ``embedded``: a manager runs Postgres. ``hosts``: the Postgres hosts in the settings."""
    return [
        *_managers(facts["managers"]),
        *_proxies(facts["managers"]),
        *_postgres(facts, embedded=embedded, hosts=hosts),
        *_connections(facts),
        *_backups(facts),
        *_certificates(facts["certificates"], facts["now"]),
        *_clocks(facts["managers"]),
        *_plain_senders(facts["managers"]),
        *_versions(facts, version, revision),
        *_agents(facts),
        *_charges(facts),
    ]


def _charges(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Prices and budgets that charge nobody."""
    if gaps := charge_warnings.of_prices(facts["price_gaps"]):
        yield CheckResult("warn", "prices", "; ".join(gaps), "moorage prices set")

    for (scope, name, unit, _), found in charge_warnings.of_budgets(facts["budget_doubts"]).items():
        detail = f"{scope}/{name} {unit}: {'; '.join(found)}"
        yield CheckResult("warn", "budgets", detail, "moorage budgets")


def _managers(managers: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    links = [manager["link"] for manager in managers]
    if not links:
        next_step = "start one: `moorage manager`"
        yield CheckResult("fail", "managers", "none is alive", next_step)
    elif len(links) == 1:
        detail = f"one, at {links[0]}: nothing new starts while it is down"
        yield CheckResult(
            "warn",
            "managers",
            detail,
            "start another manager on another machine, with the same manager.dsn",
        )
    elif len(hosts := {split_address(link)[0] for link in links}) == 1:
        detail = f"{len(links)}, all on {min(hosts)}"
        yield CheckResult("warn", "managers", detail, "move one to another machine")
    else:
        yield CheckResult("ok", "managers", f"{len(links)}: {_names(links)}")


def _proxies(managers: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    names = sorted({name for manager in managers for name in manager["proxies"]})
    if len(names) > 1:
        yield CheckResult("ok", "proxies", f"{len(names)}: {_names(names)}")
        return

    detail = (
        f"one, {names[0]}: requests fail while it is down"
        if names
        else "none: no model can be reached"
    )
    next_step = "start another proxy on another machine, and name both in DNS or a load balancer"
    yield CheckResult("warn", "proxies", detail, next_step)


def _postgres(
    facts: Mapping[str, Any], *, embedded: bool, hosts: Sequence[str]
) -> Iterator[CheckResult]:
    if embedded:
        detail = "embedded in a manager: it is lost with that machine"
        next_step = "back up, restore into a Postgres with a standby, and set manager.dsn"
        yield CheckResult("warn", "Postgres", detail, next_step)
    elif not facts["standbys"]:
        detail = "no standby is connected: nothing new starts while this server is down"
        next_step = "add a streaming standby, see docs/high-availability.md#a-primary-and-standbys"
        yield CheckResult("warn", "Postgres", detail, next_step)
    elif len(hosts) > 1 and len(set(hosts)) == 1:
        detail = f"primary and standby are on one machine, {hosts[0]}"
        yield CheckResult("warn", "Postgres", detail, "move the standby to another machine")
    elif len(hosts) < 2:
        detail = f"{facts['standbys']} standbys, but manager.dsn names one host"
        next_step = "name all hosts in manager.dsn, unless its address follows the primary"
        yield CheckResult("warn", "Postgres", detail, next_step)
    else:
        kind = (
            "synchronous"
            if facts["synchronous"]
            else "asynchronous: a failover may lose the last commits"
        )
        yield CheckResult("ok", "Postgres", f"{facts['standbys']} standbys, {kind}")


def _connections(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    allowed = facts["connections"]
    needed = CONNECTIONS_OF_MANAGER * len(facts["managers"])
    if len(facts["managers"]) > 1 and allowed < needed:
        detail = (
            f"{allowed} connections for {len(facts['managers'])} managers, which open up to "
            f"{needed}"
        )
        next_step = f"set max_connections of Postgres to {needed + 10} or more"
        yield CheckResult("warn", "Postgres", detail, next_step)


def _backups(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    taken_at = facts["backup_at"]
    tested_at = facts["tested_at"]
    now = facts["now"]
    cure = "run `moorage db backup FILE` each day, from a timer"
    if taken_at is None:
        yield CheckResult(
            "fail", "backup", "no backup has been taken with `moorage db backup`", cure
        )
        return

    age_s = now - taken_at
    status: Status = (
        "fail" if age_s > _BACKUP_FAIL_S else "warn" if age_s > _BACKUP_WARN_S else "ok"
    )
    detail = f"the last one is {_age(age_s)} old"
    yield CheckResult(status, "backup", detail, "" if status == "ok" else cure)
    cure = "run `moorage db verify FILE`: it restores a backup into a temporary Postgres"
    if tested_at is None:
        yield CheckResult("warn", "restore", "no backup has ever been tested", cure)
    elif now - tested_at > _TEST_WARN_S:
        yield CheckResult("warn", "restore", f"tested {_age(now - tested_at)} ago", cure)
    else:
        yield CheckResult("ok", "restore", f"tested {_age(now - tested_at)} ago")


def _certificates(certificates: Sequence[Mapping[str, Any]], now: float) -> Iterator[CheckResult]:
    if not certificates:
        yield CheckResult("ok", "certificates", "no agent or proxy has joined")
        return

    expired = [
        f"{certificate['kind']} {certificate['name']}"
        for certificate in certificates
        if certificate["until"] <= now
    ]
    overdue = [
        f"{certificate['kind']} {certificate['name']}"
        for certificate in certificates
        if 0 < certificate["until"] - now < _RENEWAL_OVERDUE_S
    ]
    if expired:
        next_step = (
            "revoke it (`moorage peers revoke`) and join again, or only revoke it if it is gone"
        )
        yield CheckResult("fail", "certificates", f"expired: {_names(expired)}", next_step)

    if overdue:
        next_step = "find out why: certificates renew themselves while their peers reach a manager"
        yield CheckResult(
            "warn", "certificates", f"renewal is overdue: {_names(overdue)}", next_step
        )

    if not expired and not overdue:
        yield CheckResult(
            "ok", "certificates", f"{len(certificates)} are valid for two weeks or more"
        )


def _clocks(managers: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    ahead = {m["link"]: m["clock_ahead_s"] for m in managers if m["clock_ahead_s"] is not None}
    if not ahead:
        return

    apart_s = max(*ahead.values(), 0.0) - min(*ahead.values(), 0.0)
    furthest = max(ahead, key=lambda link: abs(ahead[link]))
    detail = (
        f"managers and Postgres are at most {apart_s:.1f} s apart (`moorage agent doctor` checks a "
        "node)"
    )
    if apart_s < _CLOCK_WARN_S:
        yield CheckResult("ok", "clocks", detail)
        return

    status: Status = "fail" if apart_s >= _CLOCK_FAIL_S else "warn"
    detail += f"; {furthest} differs from Postgres by {ahead[furthest]:+.1f} s"
    yield CheckResult(status, "clocks", detail, "set them: timedatectl set-ntp true")


def _plain_senders(managers: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Clients that send secrets to whichever process listens on loopback. Managers of the previous
    release do not report them."""
    for manager in managers:
        kinds = manager["plain_senders"]
        found = [
            f"{kind}: {_names(kinds[kind])}" for kind in ("agents", "proxies") if kind in kinds
        ]
        if "keys" in kinds:
            found.append(f"API keys, since its start: {_names(kinds['keys'])}")

        if found:
            detail = (
                f"to {manager['link']}, to whatever has its port on loopback: {'; '.join(found)}"
            )
            next_step = (
                "upgrade these agents and proxies; use unix:// or https:// addresses in programs, "
                "see "
                "docs/security.md, Managers on this machine"
            )
            yield CheckResult("warn", "secrets", detail, next_step)


def _versions(facts: Mapping[str, Any], version: str, revision: str) -> Iterator[CheckResult]:
    behind = [m["link"] for m in facts["managers"] if m["version"] != version]
    if facts["revision"] != revision:
        detail = f"schema {facts['revision']}, this release has {revision}"
        next_step = "restart a manager of this release: it migrates"
        if facts["revision"] > revision:
            next_step = (
                "upgrade this machine: its managers may not work with that schema, and cannot "
                "become leader"
            )

        yield CheckResult("warn", "schema", detail, next_step)

    if behind:
        detail = f"managers of other versions than {version}: {_names(behind)}"
        yield CheckResult("warn", "versions", detail, "upgrade them one after another")

    odd = [agent["id"] for agent in facts["agents"] if incompatibility(version, agent["version"])]
    if odd:
        yield CheckResult(
            "warn",
            "versions",
            f"agents with incompatible versions for {version}: {_names(odd)}",
            "see docs/upgrades.md",
        )

    if not behind and not odd:
        yield CheckResult(
            "ok", "versions", f"all managers have {version}, and all agents are compatible"
        )


def _agents(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    agents = facts["agents"]
    if not agents:
        yield CheckResult(
            "fail", "agents", "none: nothing can run", "join one: `moorage agent join URL`"
        )
        return

    away = [agent["id"] for agent in agents if not agent["connected"]]
    if away:
        next_step = "see their logs, and `moorage agents`; nothing is placed there"
        yield CheckResult("warn", "agents", f"connected to no manager: {_names(away)}", next_step)

    unreached = list(_reach(facts))
    yield from unreached
    away = away or [result.detail for result in unreached if result.status != "ok"]
    hosts = {split_address(manager["link"])[0] for manager in facts["managers"]}
    local = [agent["id"] for agent in agents if is_loopback(agent["address"])]
    if local and (len(hosts) > 1 or len(local) < len(agents)):
        next_step = (
            "set agent.address there to an address that every proxy can reach, or agent.reach to "
            "dial-out"
        )
        detail = f"reached only by a proxy on their own machine: {_names(local)}"
        yield CheckResult("warn", "agents", detail, next_step)

    addresses = {agent["address"] for agent in agents}
    if len(agents) > 1 and len(addresses) == 1 and not local:
        detail = f"{len(agents)}, all on {min(addresses)}"
        yield CheckResult("warn", "agents", detail, "join a node on another machine")
    elif len(agents) == 1:
        next_step = "join another node: sessions cannot move elsewhere when it fails"
        yield CheckResult("warn", "agents", f"one, {agents[0]['id']}", next_step)
    elif not away and not local:
        yield CheckResult("ok", "agents", f"{len(agents)}, all connected")


def _reach(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Agents that proxies cannot reach, and the number of agents reached only over connections that
    they open themselves."""
    agents = [agent for agent in facts["agents"] if agent["connected"]]
    managers = facts["managers"]
    dialing = {agent["id"]: agent for agent in agents if is_dial_out_host(agent["address"])}
    listening = {address for manager in managers for address in manager["dialout"]}
    if dialing and not listening:
        next_step = (
            "set proxy.dialout_listen, see docs/nodes.md#nodes-that-only-dial-out; where proxies "
            "listen, the manager's log says why their address is refused"
        )
        detail = (
            "no proxy reaches agents that only dial out, because no proxy listens for them: "
            f"{_names(list(dialing))}"
        )
        yield CheckResult("fail", "agents", detail, next_step)
        return

    undialed = {name: listening & agent["undialed"].keys() for name, agent in dialing.items()}
    for none, status in ((True, "fail"), (False, "warn")):
        names = [name for name, which in undialed.items() if which and (which == listening) is none]
        if names:
            failed = min(undialed[names[0]])
            why = f"{names[0]} to {failed}: {dialing[names[0]]['undialed'][failed]}"
            detail = (
                f"without a connection to {'any proxy' if none else 'every proxy'}: "
                f"{_names(names)} ({why})"
            )
            next_step = (
                "let these nodes connect to that address, or set proxy.dialout_address to one that "
                "they can reach"
            )
            yield CheckResult(cast(Status, status), "agents", detail, next_step)

    asks = {proxy: hosts for manager in managers for proxy, hosts in manager["asks"].items()}
    proxies = {name for manager in managers for name in manager["proxies"]}
    for agent in agents:
        unreached = sorted(proxy for proxy, hosts in asks.items() if agent["address"] in hosts)
        if agent["id"] in dialing or not unreached:
            continue

        status = "fail" if proxies <= set(unreached) else "warn"
        detail = f"{agent['id']} at {agent['address']} does not answer {_names(unreached)}"
        next_step = (
            "open agent.port_range there to the proxies; or set agent.reach to dial-out there, and "
            "proxy.dialout_listen at every proxy"
        )
        yield CheckResult(cast(Status, status), "agents", detail, next_step)

    if dialing:
        detail = (
            f"{len(dialing)} reached only over connections that they open: {_names(list(dialing))}"
        )
        yield CheckResult("ok", "agents", detail)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _age(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 2 * _DAY_S else f"{seconds / _DAY_S:.0f} days"
