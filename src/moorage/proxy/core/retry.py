"""Retry policy: the kinds of failed attempts, and which of them can be retried at another replica.
Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MAX_RETRIES = 2
# A request that has taken longer than this is not retried.
RETRY_WINDOW_S = 10.0
# Statuses with which a replica rejects a request before it starts working on it.
BUSY: Final = frozenset({429, 502, 503})


class Failure(StrEnum):
    """The kind of a failed attempt. The values are those of the metric's ``kind`` label."""

    CONNECT = "connect"  # refused, unreachable, or no connection in time
    DISCONNECT = "disconnect"  # connection lost before the first byte of the response
    BUSY = "busy"  # 429, 502 or 503
    NO_ROOM = "no-room"  # the engine has no room now (``engine_room``)
    IDLE_TIMEOUT = "idle-timeout"  # no data within read_idle_timeout_s
    KEY_REJECTED = "key-rejected"  # the replica rejected the key that the manager gave us
    INTERRUPTED = "interrupted"  # connection lost in the middle of the response
    REFUSED = "refused"  # an outside provider refused our key or redirected us
    KEY_REVOKED = "key-revoked"  # the client's key was revoked in the middle of the response
    # the replica answered that its engine has died; its process will end soon
    ENGINE_DEAD = "engine-dead"


DEATHS: Final = frozenset({Failure.DISCONNECT, Failure.ENGINE_DEAD})
"""Failures that the request itself may have caused."""
_ERROR_BEGINNINGS: Final = (b'data: {"error"', b"event: error")
# Messages from vLLM's API server about an engine core that has died or is being shut down.
_DEATH_NOTES = (b"EngineCore encountered an issue", b"cannot schedule new futures after shutdown")


def tells_of_death(status: int, begin: bytes) -> bool:
    """Return whether a response reports that its engine has died, in an error or in a stream's
    first event. ``begin``: the beginning of its body. The engine's ordinary errors go to the
    client, regardless of their status."""
    if status != 500 and not is_error_event(begin):
        return False
    return any(note in begin for note in _DEATH_NOTES)


def is_error_event(begin: bytes) -> bool:
    """Return whether a stream starts with an error."""
    return begin.startswith(_ERROR_BEGINNINGS)


def should_retry(failure: Failure, earlier: tuple[Failure, ...], elapsed_s: float) -> bool:
    """Return whether to try another replica after ``failure``. ``earlier``: failures before it.

    A request is retried only before the first byte of a response. After a lost connection or a dead
    engine, it is retried only once. Usually, the engine has just closed an idle connection or was
    killed, but a request that crashes engines must not crash one replica after another.
    """
    if failure not in (Failure.CONNECT, Failure.BUSY, Failure.NO_ROOM) and failure not in DEATHS:
        return False
    if failure in DEATHS and not DEATHS.isdisjoint(earlier):
        return False

    return len(earlier) < MAX_RETRIES and elapsed_s < RETRY_WINDOW_S
