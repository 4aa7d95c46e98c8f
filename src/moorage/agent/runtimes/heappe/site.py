"""A HEAppE server's site: its clusters, node types and templates, and a job's data. Pure."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.heappe.wire import NodeType, Project, Template

_MAX_VALUE = 1000
_WHOLE_DEVICE = 1000
# Value for parameters that have none, because the server requires a value for each parameter.
_NO_VALUE = "-"


@dataclass(frozen=True, slots=True)
class SiteChoice:
    """A choice, given in the site's own names; "" means the only one. ``walltime_s``: 0 means the
    longest."""

    project: str
    cluster: str = ""
    node_type: str = ""
    template: str = ""
    walltime_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs, and the template that starts it."""

    node_type: NodeType
    project: Project
    template: Template
    walltime_s: int


def find_place(wanted: SiteChoice, node_types: Sequence[NodeType]) -> JobPlace:
    """Find the place for a job. Raises ``CreateFailed`` with the existing names."""
    offered = [node_type for node_type in node_types if wanted.project in node_type.projects]
    if not offered:
        raise CreateFailed(
            f"the site offers this user no cluster in project {wanted.project!r}",
            clean=True,
            next_step=(
                "name another project in hpc.project of the resource group, or in "
                "agent.heappe_project"
            ),
        )

    clusters = sorted({node_type.cluster for node_type in offered})
    cluster = _choose("cluster", wanted.cluster, clusters)
    in_cluster = [node_type for node_type in offered if node_type.cluster == cluster]

    # A template belongs to one node type, so it can determine the node type.
    names = [node_type.name for node_type in in_cluster if _has_template(node_type, wanted)]
    name = _choose(
        "node type", wanted.node_type, names or [node_type.name for node_type in in_cluster]
    )
    node_type = next(node_type for node_type in in_cluster if node_type.name == name)
    project = node_type.projects[wanted.project]
    enabled = [template for template in project.templates if template.enabled]
    chosen = _choose("command template", wanted.template, [template.name for template in enabled])
    template = next(template for template in enabled if template.name == chosen)
    walltime_s = wanted.walltime_s or node_type.max_walltime_s
    if node_type.max_walltime_s and walltime_s > node_type.max_walltime_s:
        raise CreateFailed(
            f"a walltime of {walltime_s:g} s is longer than node type {name!r} allows: "
            f"{node_type.max_walltime_s} s",
            clean=True,
            next_step="set a shorter walltime in the options of the resource group",
        )

    return JobPlace(node_type, project, template, math.ceil(walltime_s) or 3600)


def _has_template(node_type: NodeType, wanted: SiteChoice) -> bool:
    templates = node_type.projects[wanted.project].templates
    return any(
        template.enabled and wanted.template in ("", template.name) for template in templates
    )


def _choose(what: str, wanted: str, names: Sequence[str]) -> str:
    if wanted in names:
        return wanted
    if not wanted and len(names) == 1:
        return names[0]

    known = ", ".join(names) or "none"
    problem = (
        f"the site has no {what} {wanted!r} for this project" if wanted else f"no {what} is chosen"
    )
    raise CreateFailed(
        f"{problem}; it has: {known}",
        clean=True,
        next_step="set it in the options of the resource group",
    )


def launch_file(launch: Launch, heartbeat_s: float) -> bytes:
    """The launch file for the program in the job. It contains the kernel's secrets, so it is sent
    as a file and never in parameters, unless the server does not accept files."""
    value = {
        "argv": launch.argv,
        "env": launch.env,
        "files": [(file.path, file.text, file.mode) for file in launch.files],
        "serves": launch.serves,
        "heartbeat_s": heartbeat_s if launch.serves else 0,
        "grace_s": launch.stop_grace_s,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def parameters(template: Template, blob: bytes = b"") -> list[dict[str, str]]:
    """A value for each of the template's parameters: the blob in pieces. They contain only letters,
    digits, - and _, because values are not quoted on the way to the job. Raises ``CreateFailed`` if
    the blob does not fit."""
    text = base64.urlsafe_b64encode(zlib.compress(blob, 9)).decode().rstrip("=") if blob else ""
    names = template.parameters
    if len(text) > _MAX_VALUE * len(names):
        raise CreateFailed(
            f"command and environment take {len(text)} characters; the {len(names)} parameters of "
            "template "
            f"{template.name!r} hold {_MAX_VALUE * len(names)}",
            clean=True,
            next_step="ask the site for HEAppE 6.2 or newer, which accepts files",
        )

    pieces = [text[at : at + _MAX_VALUE] for at in range(0, _MAX_VALUE * len(names), _MAX_VALUE)]
    return [
        {"CommandParameterIdentifier": name, "ParameterValue": piece or _NO_VALUE}
        for name, piece in zip(names, pieces, strict=True)
    ]


def specification(
    name: str,
    kernel_id: str,
    place: JobPlace,
    slots: Mapping[str, int],
    *,
    values: list[dict[str, str]],
) -> dict[str, Any]:
    """The body of CreateJob. The task's name is the whole kernel id, which identifies it."""
    node_type = place.node_type
    cores = _cores(node_type, slots)
    task = {
        "Name": kernel_id,
        "MinCores": cores,
        "MaxCores": cores,
        "WalltimeLimit": place.walltime_s,
        "Priority": 4,
        "ProgressFile": "progress.txt",
        "LogFile": "log.txt",
        "StandardOutputFile": "stdout.txt",
        "StandardErrorFile": "stderr.txt",
        "ClusterNodeTypeId": node_type.id,
        "CommandTemplateId": place.template.id,
        "TemplateParameterValues": values,
    }

    return {
        "Name": name,
        "ProjectId": place.project.id,
        "ClusterId": node_type.cluster_id,
        "FileTransferMethodId": node_type.transfer_method,
        "WaitingLimit": 0,
        "Tasks": [task],
    }


def _cores(node_type: NodeType, slots: Mapping[str, int]) -> int:
    """The number of cores. On GPU queues, cores are GPUs."""
    gpus = sum(amount for slot, amount in slots.items() if slot.startswith(("cuda.", "cuda-")))
    wanted = gpus if node_type.by_gpu else slots.get("cpu", 0)
    return max(1, math.ceil(wanted / _WHOLE_DEVICE)) if wanted else max(1, node_type.cores)
