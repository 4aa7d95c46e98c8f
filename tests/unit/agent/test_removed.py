"""Kernels that were removed a while ago are reported once more, in full reports."""

from __future__ import annotations

from moorage.agent.kernel.removed import KEPT, KEPT_S, RemovedKernels
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.status import ObservedState


def ended(kernel_id: str) -> Observation:
    return Observation(KernelId(kernel_id), SessionId("s"), ObservedState.EXITED, exit_code=0)


def test_they_are_told_for_a_while() -> None:
    removed = RemovedKernels()
    removed.add(ended("a"), 0.0)
    removed.add(ended("b"), KEPT_S / 2)
    assert removed.recent(KEPT_S) == {"a": ended("a"), "b": ended("b")}
    assert list(removed.recent(KEPT_S + 1)) == ["b"]
    assert removed.recent(2 * KEPT_S) == {}


def test_of_many_the_last_ones_are_told() -> None:
    removed = RemovedKernels()
    for number in range(KEPT + 5):
        removed.add(ended(str(number)), 0.0)
    assert list(removed.recent(1.0)) == [str(number) for number in range(5, KEPT + 5)]
