"""What the scheduler decided, kept so small that all of it can be kept, and read again; all of it pure."""

from moorage.manager.decision_log.reader import CorruptDecisionLog, Decision, Reader
from moorage.manager.decision_log.timeline import Gap, decisions, differences
from moorage.manager.decision_log.writer import FORMAT, PassDelta, Segment, Writer

__all__ = [
    "FORMAT",
    "CorruptDecisionLog",
    "Decision",
    "Gap",
    "PassDelta",
    "Reader",
    "Segment",
    "Writer",
    "decisions",
    "differences",
]
