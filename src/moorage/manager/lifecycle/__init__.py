"""Session lifecycle: transition table, deadlines, and reconciliation of sessions with their
kernels. Pure."""

from moorage.manager.lifecycle.kernels import KernelChange, kernel_changes
from moorage.manager.lifecycle.reconcile import (
    drain_session,
    preempt_session,
    reconcile_session,
    stop_session,
)
from moorage.manager.lifecycle.snapshots import KernelSnapshot, SessionSnapshot
from moorage.manager.lifecycle.transitions import Event, Transition

__all__ = [
    "Event",
    "KernelChange",
    "KernelSnapshot",
    "SessionSnapshot",
    "Transition",
    "drain_session",
    "kernel_changes",
    "preempt_session",
    "reconcile_session",
    "stop_session",
]
