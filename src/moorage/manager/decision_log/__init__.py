"""Decision log: every scheduling pass in a compact form that can be read and replanned. Pure.

The loop that writes it is ``manager.loops.decision_recorder``; the rows are the store's.
"""

from moorage.manager.decision_log.reader import CorruptDecisionLog, RecordedPass, SegmentReader
from moorage.manager.decision_log.timeline import Gap, decisions, differences
from moorage.manager.decision_log.writer import FORMAT, PassDelta, Segment, Writer

__all__ = [
    "FORMAT",
    "CorruptDecisionLog",
    "Gap",
    "PassDelta",
    "RecordedPass",
    "Segment",
    "SegmentReader",
    "Writer",
    "decisions",
    "differences",
]
