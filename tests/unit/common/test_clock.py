"""System clock and manual clock."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from moorage.common.aio.clock import ManualClock, SystemClock


def test_ids_are_uuid7_and_sort_by_age() -> None:
    clock = ManualClock()
    ids = []
    for _ in range(20):
        ids.append(clock.new_id())
        clock.advance(0.001)

    assert ids == sorted(ids)
    assert len(set(ids)) == 20
    parsed = uuid.UUID(ids[0])
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def test_system_clock_meets_the_protocol() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    assert uuid.UUID(clock.new_id()).version == 7
    assert len({clock.secret() for _ in range(100)}) == 100
    assert all(0.9 <= clock.jitter(0.1) <= 1.1 for _ in range(100))


def test_manual_clock_is_deterministic() -> None:
    one = ManualClock(seed=3)
    two = ManualClock(seed=3)
    before = one.now(), one.monotonic()
    assert (one.now(), one.monotonic()) == before
    one.advance(2.5)
    assert (one.now() - before[0]).total_seconds() == one.monotonic() - before[1] == 2.5
    assert one.secret() == two.secret()
    assert ManualClock(seed=4).secret() != ManualClock(seed=3).secret()
