"""The clock, the only module that asks the system for time, identifiers or randomness.

Decisions and loops take a ``Clock`` as an argument, so tests and simulations control all three.
"""

from __future__ import annotations

import random
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Source of time, identifiers and randomness."""

    def now(self) -> datetime:
        """Wall-clock time, timezone-aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, never decreasing. Use it for durations within one
        process."""
        ...

    def boottime(self) -> float:
        """Seconds since the machine booted, including suspended time. All its processes see the
        same value."""
        ...

    def new_id(self) -> str:
        """Return a new UUIDv7 in canonical form. Identifiers sort by creation time to the
        millisecond."""
        ...

    def secret(self, nbytes: int = 24) -> str:
        """Return a URL-safe random secret with ``nbytes`` bytes of entropy."""
        ...

    def jitter(self, spread: float) -> float:
        """Return a random factor in [1 - spread, 1 + spread]."""
        ...


def _uuid7(unix_ms: int, rand: int) -> str:
    # RFC 9562 §5.7: 48 bits of milliseconds, version, 12 random bits, variant, 62 random bits.
    value = (unix_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (rand >> 62 & 0xFFF) << 64 | 0b10 << 62
    text = f"{value | rand & (1 << 62) - 1:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class SystemClock:
    """The operating system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def new_id(self) -> str:
        return _uuid7(time.time_ns() // 1_000_000, secrets.randbits(74))

    def secret(self, nbytes: int = 24) -> str:
        return secrets.token_urlsafe(nbytes)

    def jitter(self, spread: float) -> float:
        return 1 + random.uniform(-spread, spread)


class ManualClock:
    """Clock for tests and simulations: advances only on request, with seeded randomness."""

    def __init__(self, start: datetime | None = None, seed: int = 0) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._mono = 0.0
        self._rng = random.Random(seed)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._mono += seconds

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._mono

    def boottime(self) -> float:
        return self.monotonic()

    def new_id(self) -> str:
        return _uuid7(int(self._now.timestamp() * 1000), self._rng.getrandbits(74))

    def secret(self, nbytes: int = 24) -> str:
        return self._rng.randbytes(nbytes).hex()

    def jitter(self, spread: float) -> float:
        return 1.0
