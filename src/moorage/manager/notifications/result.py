"""AttemptResult of an attempt to deliver. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ANSWER = 500


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """``answer``: what the receiver answered, or why there was no attempt. ``counts``: whether a
    failure is the receiver's, not that of this installation's mail server. ``gone``: the receiver
    wants nothing more. ``permanent``: another attempt is useless."""

    succeeded: bool
    answer: str
    counts: bool = True
    gone: bool = False
    permanent: bool = False
