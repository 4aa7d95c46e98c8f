"""Checks of etcd: what each finds, and the remedy."""

from __future__ import annotations

import pytest

from moorage.server.doctor.checks import CheckResult
from moorage.server.doctor.etcd import check_etcd

THREE = {"http://a:2379": "", "http://b:2379": "", "http://c:2379": ""}
LINKS = ("one:8701", "two:8701")
HEALTHY = ("ok", "3 healthy: http://a:2379, http://b:2379, http://c:2379", "")

CASES = {
    "healthy": (THREE, LINKS, [HEALTHY]),
    "one member": (
        {"http://a:2379": ""},
        LINKS,
        [
            (
                "warn",
                "1 in etcd.address: if one fails, new components may not find the managers",
                "run three members",
            )
        ],
    ),
    "one host": (
        {f"http://a:{port}": "" for port in (2379, 2381, 2383)},
        LINKS,
        [("warn", "3 members, all on a", "separate machines")],
    ),
    "one is ill": (
        THREE | {"http://b:2379": "refused"},
        LINKS,
        [("warn", "not healthy: http://b:2379 (refused)", "etcdctl endpoint health")],
    ),
    "all are ill": (
        {"http://a:2379": "refused"},
        None,
        [("fail", "not healthy: http://a:2379 (refused)", "running components continue without etcd")],
    ),
    "of another installation": (
        THREE,
        (*LINKS, "other:8701"),
        [
            HEALTHY,
            ("warn", "managers below /moorage/ that this database does not know: other:8701", "etcd.prefix"),
        ],
    ),
    "not registered": (
        THREE,
        LINKS[:1],
        [HEALTHY, ("warn", "managers not registered: two:8701", "set etcd.address on its host")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("health", "registered", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_found(
    health: dict[str, str], registered: tuple[str, ...] | None, expected: list[tuple[str, str, str]]
) -> None:
    found: list[CheckResult] = list(check_etcd(health, registered, LINKS, "/moorage/"))
    assert [(one.status, one.detail) for one in found] == [
        (status, detail) for status, detail, _ in expected
    ]
    for one, (_, _, cure) in zip(found, expected, strict=True):
        assert cure in one.next_step
        assert bool(cure) == bool(one.next_step)


def test_a_setting_that_is_ignored_is_named() -> None:
    found = list(
        check_etcd(THREE, LINKS, LINKS, "/moorage/", ignored=("proxy.auth cannot be set in etcd",))
    )
    assert [one.status for one in found] == ["ok", "warn"]
    assert "proxy.auth" in found[1].detail
    assert "moorage config unset --etcd" in found[1].next_step
