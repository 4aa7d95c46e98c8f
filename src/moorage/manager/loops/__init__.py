"""The manager's background loops. Each tick looks at the whole truth, decides by a pure function, writes."""

from moorage.manager.loops.drainer import Drainer
from moorage.manager.loops.leader import Leader
from moorage.manager.loops.lifekeeper import Lifekeeper
from moorage.manager.loops.recorder import Recorder
from moorage.manager.loops.replicas import ReplicaKeeper
from moorage.manager.loops.scheduler import Scheduler
from moorage.manager.loops.sweeper import Sweeper
from moorage.manager.loops.usage import UsageKeeper

__all__ = [
    "Drainer",
    "Leader",
    "Lifekeeper",
    "Recorder",
    "ReplicaKeeper",
    "Scheduler",
    "Sweeper",
    "UsageKeeper",
]
