"""What the scheduler decided, kept so small that all of it can be kept, and read again; all of it pure."""

from fairlead.manager.decisions.reading import Damaged, Decision, Reader
from fairlead.manager.decisions.span import Gap, decisions, differences
from fairlead.manager.decisions.writing import FORMAT, Passed, Segment, Writer

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
