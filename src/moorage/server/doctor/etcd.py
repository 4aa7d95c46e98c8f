"""Checks of the etcd that an installation uses: its members, and who is registered there. Pure."""

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
    """``health``: of each endpoint, why it is not healthy, or "". ``registered``: links of the
    managers below ``prefix``, None if they cannot be read. ``managers``: links of those that the
    database knows. ``ignored``: why settings there are not taken."""
    yield from _members(health)
    for why in ignored:
        next_step = "find out who wrote it; `moorage config unset --etcd NAME` removes it"
        yield CheckResult("warn", "etcd", f"a setting is ignored: {why}", next_step)

    if registered is None:
        return

    if foreign := sorted(set(registered) - set(managers)):
        detail = f"managers below {prefix} that this database does not know: {', '.join(foreign)}"
        next_step = (
            "give each installation its own etcd.prefix; a key of a manager that was killed expires"
        )
        yield CheckResult("warn", "etcd", detail, next_step)

    if missing := sorted(set(managers) - set(registered)):
        next_step = "set etcd.address there, and see its log: new parts do not find it"
        yield CheckResult(
            "warn", "etcd", f"managers not registered: {', '.join(missing)}", next_step
        )


def _members(health: Mapping[str, str]) -> Iterator[CheckResult]:
    ill = [f"{endpoint} ({problem})" for endpoint, problem in health.items() if problem]
    if ill:
        next_step = (
            "see `etcdctl endpoint health` and `etcdctl alarm list`; what runs goes on without etcd"
        )
        status: Status = "fail" if len(ill) == len(health) else "warn"
        yield CheckResult(status, "etcd", f"not healthy: {', '.join(ill)}", next_step)
    elif (
        len(health) > 1 and len(hosts := {urlsplit(endpoint).hostname for endpoint in health}) == 1
    ):
        detail = f"{len(health)} members, all on {hosts.pop()}"
        yield CheckResult("warn", "etcd", detail, "move two of them to machines of their own")
    elif len(health) < 3:
        detail = (
            f"{len(health)} in etcd.address: the loss of one may leave new parts without managers"
        )
        yield CheckResult(
            "warn", "etcd", detail, "run three members, and name all of them in etcd.address"
        )
    else:
        yield CheckResult("ok", "etcd", f"{len(health)} healthy: {', '.join(health)}")
