"""Command line of a task runner. Pure."""

from __future__ import annotations

import json

from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec


def task_folder(kernel_id: KernelId) -> str:
    """Name of the directory in which the agent and the runner exchange tasks."""
    return f".moorage-tasks-{kernel_id}"


def workers(spec: KernelSpec) -> int:
    """How many tasks the kernel runs at a time."""
    assert spec.tasks is not None
    return spec.tasks.workers or max(1, spec.slots.get("cpu", 0) // 1000)


def task_command(
    spec: KernelSpec, command: tuple[str, ...], *, python: str, source: str, folder: str
) -> tuple[str, ...]:
    """The runner with its options. ``command``: runs once for each task. ``source``: the runner's
    text. ``folder``: as the kernel sees it."""
    assert spec.tasks is not None
    options = {
        "folder": f"{folder}/{task_folder(spec.kernel_id)}",
        "workers": workers(spec),
        "timeout_s": spec.tasks.timeout_s,
        "grace_s": spec.stop_grace_s,
    }
    return (python, "-I", "-S", "-c", source, json.dumps(options), *command)
