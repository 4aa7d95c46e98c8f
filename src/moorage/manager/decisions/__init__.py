"""What the scheduler decided, kept so small that all of it can be kept, and read again; all of it pure."""

from moorage.manager.decisions.reading import Damaged, Decision, Reader
from moorage.manager.decisions.span import Gap, decisions, differences
from moorage.manager.decisions.writing import FORMAT, Passed, Segment, Writer

__all__ = [
    "FORMAT",
    "Damaged",
    "Decision",
    "Gap",
    "Passed",
    "Reader",
    "Segment",
    "Writer",
    "decisions",
    "differences",
]
