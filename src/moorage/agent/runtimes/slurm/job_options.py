"""Options of ``sbatch`` for one kernel, from its launch and the agent's settings. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.slurm.commands import comment
from moorage.common.model.kernel import HpcJob

# Options that the agent sets itself, or that would take the job out of its control.
_RESERVED = frozenset(
    {
        *(
            "array",
            "chdir",
            "comment",
            "dependency",
            "error",
            "export",
            "export-file",
            "get-user-env",
            "gid",
        ),
        *("input", "job-name", "no-requeue", "nodes", "ntasks", "open-mode", "output", "parsable"),
        *("propagate", "requeue", "signal", "test-only", "uid", "wait", "wrap"),
    }
)
_OPTION = re.compile(r"[a-z][a-z-]*")
_GPU_SLOTS = re.compile(r"cuda(-[a-z0-9]+)*\.device")


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """The agent's defaults, which a resource group overrides. ``walltime_s``: 0 means the
    partition's."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    walltime_s: float = 0.0
    options: tuple[str, ...] = ()


def sbatch_options(
    launch: Launch, name: str, folder: Path, output: Path, *, defaults: JobDefaults
) -> list[str]:
    """The options for a kernel. Raises ``CreateFailed`` for an option that is not allowed."""
    asked = launch.hpc or HpcJob()
    options = [
        *(
            f"--job-name={name}",
            comment(launch.kernel_id),
            f"--chdir={folder}",
            f"--output={output}",
        ),
        *("--export=NIL", "--nodes=1", "--ntasks=1", "--no-requeue", "--open-mode=append"),
    ]
    values = {
        "partition": asked.partition or defaults.partition,
        "account": asked.account or asked.project or defaults.account,
        "qos": asked.qos or defaults.qos,
    }
    options += [f"--{key}={value}" for key, value in values.items() if value]
    if walltime_s := asked.walltime_s or defaults.walltime_s:
        options.append(f"--time={max(1, math.ceil(walltime_s / 60))}")
    if cpu := launch.slots.get("cpu", 0):
        options.append(f"--cpus-per-task={math.ceil(cpu / 1000)}")
    if memory := launch.slots.get("mem", 0):
        options.append(f"--mem={math.ceil(memory / (1 << 20))}M")
    if gpus := sum(amount for slot, amount in launch.slots.items() if _GPU_SLOTS.fullmatch(slot)):
        options.append(f"--gres=gpu:{gpus}")

    options += defaults.options
    for key, value in sorted(asked.options.items()):
        if not _OPTION.fullmatch(key) or key in _RESERVED:
            raise CreateFailed(
                f"option {key!r} of the resource group is not allowed for a job of runtime slurm",
                clean=True,
                next_step=(
                    "remove it from the options of the group; the agent sets name, output "
                    "and script"
                ),
            )

        options.append(f"--{key}={value}" if value else f"--{key}")

    return options
