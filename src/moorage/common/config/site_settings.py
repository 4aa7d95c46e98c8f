"""Settings for agents that submit jobs to a site. They are part of the section ``agent``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class SlurmSettings(BaseModel):
    """Settings for the runtime ``slurm``. A resource group of kind hpc overrides partition,
    account, QOS and walltime."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slurm_max_jobs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Maximum number of this agent's jobs that wait or run at the site at the same time."""
    slurm_work_dir: Annotated[str, Field(pattern=r"^(/.*)?$")] = ""
    """Directory for job files, shared by the login node and the compute nodes. Empty means ``jobs``
    in the agent's state directory."""
    slurm_partition: str = ""
    """Partition for jobs. Empty means the site's default."""
    slurm_account: str = ""
    """Account that jobs are billed to. Empty means the user's default."""
    slurm_qos: str = ""
    """QOS for jobs. Empty means the site's default."""
    slurm_walltime_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0
    """Walltime of jobs, rounded up to minutes. 0 means the partition's default."""
    slurm_options: tuple[str, ...] = ()
    """Further sbatch options for all jobs, such as ``--reservation=NAME``."""
    slurm_setup: str = ""
    """Shell lines that run in each job before its program, such as ``module load CUDA/12.4``."""
    slurm_python: str = ""
    """Python 3.7 or later on the compute nodes, for the job launcher. Empty means the path of the
    agent's own interpreter."""
    slurm_commands: str = ""
    """Directory with sbatch, squeue, scancel and sinfo. If empty, PATH is searched."""
    slurm_conf: Annotated[str, Field(pattern=r"^(/.*)?$")] = ""
    """Slurm's configuration file (SLURM_CONF), for a login node that serves several clusters. Empty
    means the node's default."""
    slurm_poll_s: Annotated[float, Field(ge=0.1, le=600)] = 10
    """Interval of squeue calls in seconds; one call covers all jobs."""
    slurm_heartbeat_timeout_s: Annotated[float, Field(ge=0)] = 1800
    """Seconds without a sign of life from this agent after which a job ends itself. 0 means
    never."""


class HeappeSettings(BaseModel):
    """Settings for the runtime ``heappe``. A resource group of kind hpc overrides project, cluster,
    node type, template and walltime, by the names that the site uses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    heappe_url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Address of the HEAppE server, without the part ``/heappe``."""
    heappe_auth: Literal["api-key", "session", "bearer"] = "api-key"
    """``api-key``: name and password in a header of each call (HEAppE 6.2 and newer); ``session``:
    a login with both; ``bearer``: a token from the site's identity provider."""
    heappe_user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-. ]{0,50}$")] = ""
    """User name at HEAppE. Each agent needs its own, unless ``heappe_shared_account`` is set."""
    heappe_secret: Annotated[str | None, Field(max_length=16_000)] = None
    """Password, or token for ``bearer``."""
    heappe_secret_file: Path | None = None
    """File that contains the secret instead. It is read again when the site rejects the secret."""
    heappe_shared_account: bool = False
    """Whether other agents may have jobs under the same account. They share its tunnels and its
    session."""
    heappe_project: str = ""
    """Accounting string of the project."""
    heappe_cluster: str = ""
    """Cluster for jobs. Empty means the project's only cluster."""
    heappe_node_type: str = ""
    """Node type for jobs. Empty means the only type that has the template."""
    heappe_template: str = ""
    """Command template that starts jobs; deploy/heappe contains it. Empty means the node type's
    only template."""
    heappe_walltime_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0
    """Walltime of jobs. 0 means the longest that the node type allows."""
    heappe_max_jobs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Maximum number of this agent's jobs that wait or run at the site at the same time. A HEAppE
    server has 100 tunnels for all its users, and each model uses one."""
    heappe_poll_s: Annotated[float, Field(ge=1, le=600)] = 40
    """Interval at which jobs are listed; one call covers all of them."""
    heappe_heartbeat_timeout_s: Annotated[float, Field(ge=0)] = 3600
    """Seconds without a request or a health check after which a serving job ends itself. 0 means
    never."""
    heappe_unreachable_timeout_s: Annotated[float, Field(ge=0, le=604_800)] = 1800
    """How long a job is kept, within its walltime, while its engine cannot be reached through the
    site. Choose a longer time than a login node takes to restart. After that, the job is replaced.
    A job also waits this long to be submitted while the site does not respond."""


class CelerySettings(BaseModel):
    """Settings for the runtime ``celery``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    celery_app: str = ""
    """Celery application whose tasks are called by sessions of the runtime celery, as in ``celery
    -A``."""
    celery_workdir: str = ""
    """Directory of that application if it is not installed; it is added to the import path."""
    celery_python: str = ""
    """Interpreter with Celery and the application's imports. Empty means the agent's."""
