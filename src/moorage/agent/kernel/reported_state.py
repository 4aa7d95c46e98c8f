"""State of one kernel as the agent acts by it, and as it reports it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.kernel.report_timing import HOUSEKEEPING, OnChange, coalescing_window
from moorage.common.model.status import ObservedState


class Basis(Enum):
    """The source of a state."""

    RECORD = "record"  # what is to be expected after the last run of the agent
    OBSERVATION = "observation"  # what this run of the agent has seen or done


class ReportedState:
    """``value``: what the agent acts by. ``shown``: what it reports, which is UNKNOWN until it has
    seen or done something of the kernel. ``activity``: the current step of a kernel that does not
    run yet, for users. ``on_state`` is called with each new state before ``on_change``."""

    def __init__(
        self,
        value: ObservedState,
        basis: Basis,
        *,
        on_state: Callable[[ObservedState], None],
        on_change: OnChange,
    ) -> None:
        self.value = value
        self.activity = ""
        self._basis = basis
        self._on_state = on_state
        self._on_change = on_change

    @property
    def shown(self) -> ObservedState:
        return ObservedState.UNKNOWN if self._basis is Basis.RECORD else self.value

    def set(self, state: ObservedState) -> None:
        before = self._basis
        self._basis = Basis.OBSERVATION

        # An end is always worth a report, because its outcome is new even if the state is not.
        if self.value is not state or state in ENDED:
            self.value = state
            self.activity = ""
            self._on_state(state)
            self._on_change(coalescing_window(state))
        elif before is Basis.RECORD:
            # The change was expected. A process that starts fast is ready before this is reported.
            self._on_change(HOUSEKEEPING)

    def set_unknown(self) -> None:
        self.set(ObservedState.UNKNOWN)

    def prepare(self, activity: str) -> None:
        self.set(ObservedState.PREPARING)
        self.show(activity)

    def show(self, activity: str) -> None:
        """Report the kernel's current step, until its state changes."""
        if activity != self.activity:
            self.activity = activity
            self._on_change(HOUSEKEEPING)
