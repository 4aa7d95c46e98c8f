"""States of a request at the proxy, and the one table of what may happen in each. Pure.

    READING     its head, or its body, is on the way
    HELD        admitted, and waits for a replica
    SENT        a replica has it, and has not responded
    STREAMING   the response of the replica passes to the client
    ENDED       counts, reservation and metrics are settled

``TRANSITIONS`` names every event of ``RequestFlow``, the states in which it may come, and those in
which it may leave the request. The flow raises ``IllegalEvent`` for an event that comes in another
state, so each step begins where the table says. That it ends there, in any order of events, is a
property in the tests, and ARCHITECTURE.md shows the table.

States are plain numbers: compiled, a comparison of them costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

FlowState: TypeAlias = int

READING: Final = 0
HELD: Final = 1
SENT: Final = 2
STREAMING: Final = 3
ENDED: Final = 4

NAMES: Final = ("READING", "HELD", "SENT", "STREAMING", "ENDED")


@dataclass(frozen=True, slots=True)
class FlowTransition:
    """``event``: the method of ``RequestFlow``. ``comes_in``, ``leads_to``: the states before and
    after it."""

    event: str
    comes_in: tuple[FlowState, ...]
    leads_to: tuple[FlowState, ...]

    def steps(self) -> Iterator[tuple[FlowState, FlowState]]:
        for before in self.comes_in:
            for after in self.leads_to:
                yield before, after


TRANSITIONS: Final = (
    FlowTransition("head", (READING,), (READING, ENDED)),
    FlowTransition("head_again", (READING,), (READING, ENDED)),
    FlowTransition("body", (READING,), (HELD, SENT, ENDED)),
    FlowTransition("routes_changed", (HELD,), (HELD, SENT, ENDED)),
    FlowTransition("timer", (HELD,), (HELD, SENT, ENDED)),
    FlowTransition("sent", (SENT,), (SENT,)),
    FlowTransition("upstream_failed", (SENT,), (SENT, HELD, ENDED)),
    FlowTransition("upstream_head", (SENT,), (SENT, HELD, STREAMING, ENDED)),
    FlowTransition("upstream_end", (STREAMING,), (ENDED,)),
    FlowTransition("upstream_lost", (STREAMING,), (ENDED,)),
    # A plane may learn only later that the request has ended: these change nothing then.
    FlowTransition("key_revoked", (STREAMING, ENDED), (ENDED,)),
    FlowTransition("refuse", (READING, HELD, SENT, ENDED), (ENDED,)),
    FlowTransition("client_gone", (READING, HELD, SENT, STREAMING, ENDED), (ENDED,)),
)


class IllegalEvent(Exception):
    """An event in a state in which it cannot come."""

    def __init__(self, event: str, state: FlowState) -> None:
        super().__init__(f"{event} in {NAMES[state]}")
