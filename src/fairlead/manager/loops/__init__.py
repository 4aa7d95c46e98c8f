"""The manager's background loops. Each tick looks at the whole truth, decides by a pure function, writes."""

from fairlead.manager.loops.drainer import Drainer
from fairlead.manager.loops.leader import Leader
from fairlead.manager.loops.lifekeeper import Lifekeeper
from fairlead.manager.loops.recorder import Recorder
from fairlead.manager.loops.replicas import ReplicaKeeper
from fairlead.manager.loops.scheduler import Scheduler
from fairlead.manager.loops.sweeper import Sweeper
from fairlead.manager.loops.usage import UsageKeeper

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
