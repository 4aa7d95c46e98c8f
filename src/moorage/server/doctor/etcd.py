"""Checks of an installation's etcd: its members and registrations. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from moorage.server.doctor.checks import CheckResult, Status


def check_etcd(
    health: Mapping[str, str],
    registered: Collection[str] | None,
    managers: Collection[str],
    prefix: str,
    *,
    ignored: Sequence[str] = (),
) -> Iterator[CheckResult]:
    """Check etcd. ``health``: for each endpoint, why it is unhealthy; empty if it is healthy.
    ``registered``: links of the managers below ``prefix``, None if they cannot be read.
    ``managers``: links of the managers in the database. ``ignored``: why settings in etcd are
    ignored."""
    yield from _members(health)
    for why in ignored:
        next_step = "find out who wrote it; `moorage config unset --etcd NAME` removes it"
        yield CheckResult("warn", "etcd", f"a setting is ignored: {why}", next_step)

    if registered is None:
        return

    if foreign := sorted(set(registered) - set(managers)):
        detail = f"managers below {prefix} that this database does not know: {', '.join(foreign)}"
        next_step = (
            "give each installation its own etcd.prefix; the key of a killed manager expires"
        )
        yield CheckResult("warn", "etcd", detail, next_step)

    if missing := sorted(set(managers) - set(registered)):
        next_step = "set etcd.address on its host, and see its log; new components cannot find it"
        yield CheckResult(
            "warn", "etcd", f"managers not registered: {', '.join(missing)}", next_step
        )


def _members(health: Mapping[str, str]) -> Iterator[CheckResult]:
    ill = [f"{endpoint} ({problem})" for endpoint, problem in health.items() if problem]
    if ill:
        next_step = (
            "see `etcdctl endpoint health` and `etcdctl alarm list`; running components continue "
            "without etcd"
        )
        status: Status = "fail" if len(ill) == len(health) else "warn"
        yield CheckResult(status, "etcd", f"not healthy: {', '.join(ill)}", next_step)
    elif (
        len(health) > 1 and len(hosts := {urlsplit(endpoint).hostname for endpoint in health}) == 1
    ):
        detail = f"{len(health)} members, all on {hosts.pop()}"
        yield CheckResult("warn", "etcd", detail, "move two of them to separate machines")
    elif len(health) < 3:
        detail = (
            f"{len(health)} in etcd.address: if one fails, new components may not find the managers"
        )
        yield CheckResult(
            "warn", "etcd", detail, "run three members, and name all of them in etcd.address"
        )
    else:
        yield CheckResult("ok", "etcd", f"{len(health)} healthy: {', '.join(health)}")
