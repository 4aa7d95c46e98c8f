"""Parts shared by the runtimes for batch systems: job names, how jobs end, doubtful submissions,
and the launcher inside a job."""

from moorage.agent.runtimes.batch.ends import program_end
from moorage.agent.runtimes.batch.names import JobName, agent_part, kernel_part
from moorage.agent.runtimes.batch.submission import JobCandidate, SubmissionVerdict, resolve

__all__ = [
    "JobCandidate",
    "JobName",
    "SubmissionVerdict",
    "agent_part",
    "kernel_part",
    "program_end",
    "resolve",
]
