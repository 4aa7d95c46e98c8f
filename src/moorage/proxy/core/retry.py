"""What an attempt at a replica came to, and whether another replica may be tried. Pure."""

from __future__ import annotations

from enum import StrEnum

MOST_FURTHER_ATTEMPTS = 2
# A request that has waited so long already is answered with what is known.
FAILOVER_WITHIN_S = 10.0
# Statuses with which a replica says "not me, not now" before it has begun to work.
BUSY = frozenset({429, 502, 503})


class Failure(StrEnum):
    """How a replica failed; the values are the ``kind`` label of the metric."""

    CONNECT = "connect"  # refused, unreachable, or no connection in time
    DISCONNECT = "disconnect"  # connection lost before the first byte of the answer
    BUSY = "busy"  # 429, 502 or 503
    SILENT = "silent"  # nothing within read_idle_timeout_s
    OUR_KEY = "our-key"  # the replica refused the key that the manager gave us
    BROKEN = "broken"  # connection lost in the middle of the answer


def another(failure: Failure, so_far: tuple[Failure, ...], elapsed_s: float) -> bool:
    """Whether to try again after ``failure``. ``so_far``: earlier failures of the same request.

    Only before the first byte of an answer. A lost connection is tried once more and no further: it is
    most often an idle connection that the engine closed just then, but a request that crashes an
    engine must not crash one replica after the other.
    """
    if failure in (Failure.SILENT, Failure.OUR_KEY, Failure.BROKEN):
        return False
    if failure is Failure.DISCONNECT and failure in so_far:
        return False
    return len(so_far) < MOST_FURTHER_ATTEMPTS and elapsed_s < FAILOVER_WITHIN_S
