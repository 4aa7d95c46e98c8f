"""The age of a proxy's routes and credentials: zero while a manager is connected, and limited while
none is."""

from __future__ import annotations

from moorage.proxy.core.table_age import TableAge


def test_credentials_age_only_without_a_manager() -> None:
    age = TableAge(60)
    assert (age.age_s(1000), age.is_exceeded(1000)) == (0, False)
    age.disconnected(1000)
    age.disconnected(1030)
    assert (age.age_s(1059), age.is_exceeded(1059)) == (59, False)
    assert age.is_exceeded(1060)
    age.connected()
    assert (age.age_s(9999), age.is_exceeded(9999)) == (0, False)


def test_saved_credentials_bring_their_age() -> None:
    age = TableAge(60)
    age.confirmed(5, age_s=59)
    assert not age.is_exceeded(5)
    assert age.is_exceeded(6)
    age.confirmed(5, age_s=-3600)  # the clock was set back
    assert age.age_s(5) == 0


def test_no_limit() -> None:
    age = TableAge(0)
    age.disconnected(0)
    assert not age.is_exceeded(1e9)
