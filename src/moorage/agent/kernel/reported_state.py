"""The state of one kernel, as the agent acts on it and as it reports it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.kernel.report_timing import HOUSEKEEPING, OnChange, coalescing_window
from moorage.common.model.status import ObservedState


class Basis(Enum):
    """Where a state comes from."""

    RECORD = "record"  # what is expected after the agent's last run
    OBSERVATION = "observation"  # what this run of the agent has observed or done


class ReportedState:
    """``value``: the state that the agent acts on. ``shown``: the state that it reports, which is
    UNKNOWN until it has observed the kernel or acted on it. ``activity``: the current step of a
    kernel that is not running yet, for users. ``on_state`` is called with each new state before
    ``on_change``."""

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
        """Report the kernel's current step until its state changes."""
        if activity != self.activity:
            self.activity = activity
            self._on_change(HOUSEKEEPING)
