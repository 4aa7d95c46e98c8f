"""Environment variables that describe a kernel's run to its program."""

from __future__ import annotations

from datetime import datetime

from moorage.agent.engines.base import granted_gpus
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import format_amount

THREADS_VAR = "OMP_NUM_THREADS"
_ONLY_KERNEL = "main1"


def run_variables(spec: KernelSpec, started_at: datetime | None) -> dict[str, str]:
    """Variables that a user cannot override. ``started_at``: None if the kernel starts later than
    now, as a job in the queue of a site does.

    ``MOORAGE_END_TIME`` is in seconds since 1970 UTC, like ``SLURM_JOB_END_TIME``. The time limit
    is counted from the moment that the session is ready, so its run may end a little later.
    """
    variables = {
        "MOORAGE_CPUS": format_amount("cpu", spec.slots.get("cpu", 0)),
        "MOORAGE_MEMORY_BYTES": str(spec.slots.get("mem", 0)),
        "MOORAGE_GPUS": str(len(granted_gpus(spec))),
    }
    if spec.attempt:
        variables["MOORAGE_ATTEMPT"] = str(spec.attempt)
    if spec.user:
        variables["MOORAGE_USER"] = spec.user
    if spec.project:
        variables["MOORAGE_PROJECT"] = spec.project
    if spec.time_limit_s and started_at is not None:
        variables["MOORAGE_END_TIME"] = str(int(started_at.timestamp() + spec.time_limit_s))
    if spec.cluster is None:
        variables |= _alone()

    return variables


def default_variables(spec: KernelSpec) -> dict[str, str]:
    """Variables that an image, an engine or a user overrides.

    Libraries of numerics start a thread for each CPU of the node, which are more than the session
    has. Engines of models choose their number of threads themselves.
    """
    if spec.engine != "custom" or "cpu" not in spec.slots:
        return {}
    return {THREADS_VAR: str(max(1, spec.slots["cpu"] // 1000))}


def _alone() -> dict[str, str]:
    """Variables of a cluster with one kernel, so that a program needs no case for it. Those of
    torch.distributed are left out, because libraries take ``WORLD_SIZE`` for a request to use
    several processes."""
    return {
        "MOORAGE_CLUSTER_SIZE": "1",
        "MOORAGE_CLUSTER_MODE": "single-node",
        "MOORAGE_CLUSTER_HOSTS": _ONLY_KERNEL,
        "MOORAGE_CLUSTER_ADDRESSES": "127.0.0.1",
        "MOORAGE_CLUSTER_HOST": _ONLY_KERNEL,
        "MOORAGE_CLUSTER_ROLE": "main",
        "MOORAGE_CLUSTER_IDX": "1",
    }
