"""Session states with their causes, for refusals that end a read. Pure."""

from __future__ import annotations

from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import Status
from moorage.common.views.resources import KernelView, SessionView


def state_of(found: SessionView | KernelView) -> str:
    """The status and its cause: ``ERROR: the image is not on the node``."""
    why = found.detail or (REASONS[found.reason].text if found.reason is not Reason.NONE else "")
    return f"{found.status}: {why}" if why else found.status


def has_failed_to_run(kernel: KernelView) -> bool:
    """Whether it ended with an error before its program had ended, so that it may have no log."""
    return kernel.status is Status.ERROR and kernel.exit_code is None
