"""Background loops of the manager. Each run reads the stored state, decides with a pure function,
and writes."""

from moorage.manager.loops.agent_monitor import AgentMonitor
from moorage.manager.loops.decision_recorder import DecisionRecorder
from moorage.manager.loops.drain_controller import DrainController
from moorage.manager.loops.garbage_collector import GarbageCollector
from moorage.manager.loops.leader import Leader
from moorage.manager.loops.replica_controller import ReplicaController
from moorage.manager.loops.scheduler import Scheduler
from moorage.manager.loops.session_controller import SessionController
from moorage.manager.loops.start_calibrator import StartCalibrator
from moorage.manager.loops.usage_writer import UsageWriter

__all__ = [
    "AgentMonitor",
    "DecisionRecorder",
    "DrainController",
    "GarbageCollector",
    "Leader",
    "ReplicaController",
    "Scheduler",
    "SessionController",
    "StartCalibrator",
    "UsageWriter",
]
