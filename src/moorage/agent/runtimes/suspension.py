"""Suspension of kernels: their processes stop where they are and keep everything that they hold.
For runtimes with ``Capabilities.suspension``."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from moorage.agent.runtimes.base import Handle


@runtime_checkable
class Suspending(Protocol):
    """A suspended kernel is still RUNNING. ``stop`` needs a kernel that continues; ``destroy`` does
    not."""

    async def suspend(self, handle: Handle) -> None:
        """Stop all processes of the kernel. Idempotent. Raises ``RuntimeFailed`` if one of them
        does not stop."""
        ...

    async def resume(self, handle: Handle) -> None:
        """Let all processes of the kernel continue. Idempotent. Raises ``RuntimeFailed``."""
        ...
