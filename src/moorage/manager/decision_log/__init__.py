"""What the scheduler decided, kept so small that all of it can be kept, and read again; all of it pure."""

from moorage.manager.decision_log.reader import Damaged, Decision, Reader
from moorage.manager.decision_log.span import Gap, decisions, differences
from moorage.manager.decision_log.writer import FORMAT, Passed, Segment, Writer

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
