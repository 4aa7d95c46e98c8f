"""The name of a job at a site, which identifies its kernel without a record. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from moorage.common.model.ids import KernelId

_FORM = re.compile(r"mg-([0-9a-f]{8})-([0-9a-f]{12})-([0-9]{1,6})")
_RANDOM_PART = re.compile(r"[0-9a-f-]*-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class JobName:
    """``mg-<agent>-<kernel>-<attempt>``: at most 31 letters, digits and dashes, which every site
    allows."""

    agent: str
    kernel: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"mg-{self.agent}-{self.kernel}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> JobName | None:
        """Parse a job's name. None if it is not one of our jobs."""
        match = _FORM.fullmatch(text)
        return cls(match[1], match[2], int(match[3])) if match else None


def agent_part(identity: str) -> str:
    """The agent's part of a name. ``identity``: the identity of the agent's state directory. The
    part differs between agents that share an account at a site."""
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


def kernel_part(kernel_id: KernelId) -> str:
    """The kernel's part of a name: the random end of a UUIDv7, which starts with the time."""
    match = _RANDOM_PART.fullmatch(kernel_id)
    return match[1] if match else hashlib.sha256(kernel_id.encode()).hexdigest()[:12]
