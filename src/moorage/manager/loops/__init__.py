"""The manager's background loops. Each tick looks at the whole truth, decides by a pure function, writes."""

from moorage.manager.loops.decision_recorder import DecisionRecorder
from moorage.manager.loops.drain_controller import Drainer
from moorage.manager.loops.garbage_collector import Sweeper
from moorage.manager.loops.leader import Leader
from moorage.manager.loops.replica_controller import ReplicaKeeper
from moorage.manager.loops.scheduler import Scheduler
from moorage.manager.loops.session_controller import Lifekeeper
from moorage.manager.loops.usage_writer import UsageKeeper

__all__ = [
    "DecisionRecorder",
    "Drainer",
    "Leader",
    "Lifekeeper",
    "ReplicaKeeper",
    "Scheduler",
    "Sweeper",
    "UsageKeeper",
]
