"""Checks of etcd: a table of cases."""

from __future__ import annotations

import pytest

from moorage.server.doctor.etcd import check_etcd

THREE = {"http://a:2379": "", "http://b:2379": "", "http://c:2379": ""}
LINKS = ("one:8701", "two:8701")


def found(health: dict[str, str], registered: tuple[str, ...] | None) -> list[tuple[str, str]]:
    return [(one.status, one.detail) for one in check_etcd(health, registered, LINKS, "/moorage/")]


@pytest.mark.parametrize(
    ("health", "registered", "expected"),
    [
        (THREE, LINKS, [("ok", "3 healthy: http://a:2379, http://b:2379, http://c:2379")]),
        (
            {"http://a:2379": ""},
            LINKS,
            [("warn", "1 in etcd.address: the loss of one may leave new parts without managers")],
        ),
        (THREE | {"http://b:2379": "refused"}, LINKS, [("warn", "not healthy: http://b:2379 (refused)")]),
        ({"http://a:2379": "refused"}, None, [("fail", "not healthy: http://a:2379 (refused)")]),
        (
            THREE,
            (*LINKS, "other:8701"),
            [
                ("ok", "3 healthy: http://a:2379, http://b:2379, http://c:2379"),
                ("warn", "managers below /moorage/ that this database does not know: other:8701"),
            ],
        ),
        (
            THREE,
            LINKS[:1],
            [
                ("ok", "3 healthy: http://a:2379, http://b:2379, http://c:2379"),
                ("warn", "managers not registered: two:8701"),
            ],
        ),
    ],
)
def test_cases(
    health: dict[str, str], registered: tuple[str, ...] | None, expected: list[tuple[str, str]]
) -> None:
    assert found(health, registered) == expected
