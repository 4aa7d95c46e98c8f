"""Parts that runtimes of batch systems share: names of jobs, submissions in doubt, the launcher in a job, and
the ledger of doubtful jobs."""

from moorage.agent.runtimes.batch.doubts import DoubtLedger
from moorage.agent.runtimes.batch.names import JobName, agent_part, kernel_part
from moorage.agent.runtimes.batch.submission import Candidate, Verdict, resolve

__all__ = ["Candidate", "DoubtLedger", "JobName", "Verdict", "agent_part", "kernel_part", "resolve"]
