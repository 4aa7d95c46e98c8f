"""States of a request in the proxy, and the table of events allowed in each. Pure.

    READING     its head or body has not arrived completely
    HELD        it is admitted and waits for a replica
    SENT        a replica has it but has not responded
    STREAMING   the replica's response is relayed to the client
    ENDED       counts, reservation and metrics are settled

``TRANSITIONS`` lists every event of ``RequestFlow`` with the states in which it is allowed and the
states to which it can lead. The flow raises ``IllegalEvent`` for an event in any other state.
Property tests verify, for arbitrary orders of events, that each event leads to a listed state.
ARCHITECTURE.md shows the table.

States are plain numbers, because compiled code compares them at no cost.
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
    """``event``: the name of a ``RequestFlow`` method. ``comes_in``, ``leads_to``: the possible
    states before and after it."""

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
    # A plane may learn late that the request has ended. These events then change nothing.
    FlowTransition("key_revoked", (STREAMING, ENDED), (ENDED,)),
    FlowTransition("refuse", (READING, HELD, SENT, ENDED), (ENDED,)),
    FlowTransition("client_gone", (READING, HELD, SENT, STREAMING, ENDED), (ENDED,)),
)


class IllegalEvent(Exception):
    """An event in a state that does not allow it."""

    def __init__(self, event: str, state: FlowState) -> None:
        super().__init__(f"{event} in {NAMES[state]}")
