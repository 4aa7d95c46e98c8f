"""The sub kernels that a cluster has lost, and the part of the session's detail about them.
Pure."""

from __future__ import annotations

from moorage.common.model.cluster import MAIN, WITHOUT
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, SessionType, Status
from moorage.manager.lifecycle.snapshots import KernelSnapshot, SessionSnapshot

# Prefix, in a session's detail, of the warning that the session is considered idle.
IDLE = "idle: "


def may_degrade(spec: SessionSpec) -> bool:
    return spec.cluster is not None and spec.cluster.on_kernel_loss == "degrade"


def lost_sub_kernels(session: SessionSnapshot) -> list[KernelSnapshot]:
    """Sub kernels of a cluster that ended when they should not have, or without which it may
    continue.

    In a batch session, a sub kernel may finish before main1 does."""
    expected = Reason.EXIT_ZERO if session.spec.type is SessionType.BATCH else None
    degrades = session.status is Status.RUNNING and may_degrade(session.spec)
    subs = [kernel for kernel in session.kernels if kernel.hostname != MAIN]

    return [
        k
        for k in subs
        if (k.unreachable and degrades) or (k.status in TERMINAL and k.reason is not expected)
    ]


def describe_loss(kernel: KernelSnapshot) -> str:
    if kernel.unreachable:
        return f"{kernel.hostname}: its agent {kernel.agent_id} does not report"
    return f"{kernel.hostname}: {kernel.detail or REASONS[kernel.reason].text or 'it is gone'}"


def describe_losses(session: SessionSnapshot) -> str:
    """Describe the lost kernels, or return "" if there are none."""
    lost = lost_sub_kernels(session)
    return "; ".join(f"{WITHOUT}{describe_loss(kernel)}" for kernel in lost)


def tells_losses(detail: str, losses: str) -> bool:
    """Whether ``detail`` describes exactly these losses, with or without the idle warning."""
    return detail == losses or detail.startswith(f"{losses}; {IDLE}")


def with_warning(losses: str, warning: str) -> str:
    """The detail of a session that continues without the lost kernels, combined with its warning.
    Either may be ""."""
    return "; ".join(part for part in (losses, warning) if part)
