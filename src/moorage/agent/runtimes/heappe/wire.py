"""Values in HEAppE's REST API: calls with their limits, jobs, tasks, tunnels, node types. Pure.

Names on the wire are PascalCase, and enums are numbers. A missing or unknown member never raises,
because other versions have more or fewer members.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault


class JobState(IntEnum):
    """State of a job. The values are neither ordered nor complete: compare only with the sets
    below."""

    UNKNOWN = 0
    CONFIGURING = 1
    SUBMITTED = 2
    QUEUED = 4
    RUNNING = 8
    FINISHED = 16
    FAILED = 32
    CANCELED = 64
    WAITING_FOR_ACCOUNT = 128
    DELETED = 256


ACTIVE = frozenset(
    {
        JobState.CONFIGURING,
        JobState.SUBMITTED,
        JobState.QUEUED,
        JobState.RUNNING,
        JobState.WAITING_FOR_ACCOUNT,
    }
)
ENDED = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELED})
DELETABLE = frozenset({JobState.CONFIGURING, *ENDED})

PROGRESS_FILE = 1
STDERR_FILE = 2
STDOUT_FILE = 3


@dataclass(frozen=True, slots=True)
class HeappeCall:
    """A call. ``limit``: the largest body in bytes. ``timeout_s``: the timeout for the whole call.
    ``repeatable``: a second call does no harm, so the call may use a connection that might be
    dead."""

    method: str
    path: str
    limit: int = 100_000
    timeout_s: float = 30.0
    repeatable: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


_JOBS = "JobManagement"
_TRANSFER = "DataTransfer"
_FILES = "FileTransfer"
_USERS = "UserAndLimitationManagement"
_CLUSTERS = "ClusterInformation"
# Calls that work on the cluster over SSH take seconds.
_SLOW_S = 120.0

AUTHENTICATE = HeappeCall("POST", f"{_USERS}/AuthenticateUserPassword", 148)
PROJECTS = HeappeCall("GET", f"{_USERS}/ProjectsForCurrentUser", repeatable=True)
CLUSTERS = HeappeCall("GET", f"{_CLUSTERS}/ListAvailableClusters", timeout_s=60, repeatable=True)
NODE_USAGE = HeappeCall(
    "GET", f"{_CLUSTERS}/CurrentClusterNodeUsage", timeout_s=60, repeatable=True
)
HEALTH = HeappeCall("GET", "Health", repeatable=True)
CREATE_JOB = HeappeCall("POST", f"{_JOBS}/CreateJob", 250_000, _SLOW_S)
SUBMIT_JOB = HeappeCall("PUT", f"{_JOBS}/SubmitJob", 94, _SLOW_S)
CANCEL_JOB = HeappeCall("PUT", f"{_JOBS}/CancelJob", 98, _SLOW_S)
DELETE_JOB = HeappeCall("DELETE", f"{_JOBS}/DeleteJob", 120, _SLOW_S)
JOB_INFO = HeappeCall("GET", f"{_JOBS}/CurrentInfoForJob", repeatable=True)
LIST_JOBS = HeappeCall("GET", f"{_JOBS}/ListJobsForCurrentUser", timeout_s=60, repeatable=True)
NODE_IPS = HeappeCall("GET", f"{_JOBS}/AllocatedNodesIPs", repeatable=True)
REQUEST_TUNNEL = HeappeCall("POST", f"{_TRANSFER}/RequestDataTransfer", 170, 60)
CLOSE_TUNNEL = HeappeCall("POST", f"{_TRANSFER}/CloseDataTransfer", 220, 60)
NODE_GET = HeappeCall("POST", f"{_TRANSFER}/HttpGetToJobNode", 50_000)
NODE_POST = HeappeCall("POST", f"{_TRANSFER}/HttpPostToJobNode", 5_000_000)
NODE_STREAM = HeappeCall("POST", f"{_TRANSFER}/HttpPostToJobNodeStream", 5_000_000)
FILE_PARTS = HeappeCall("POST", f"{_FILES}/DownloadPartsOfJobFilesFromCluster", 480, 60)
CHANGED_FILES = HeappeCall("GET", f"{_FILES}/ListChangedFilesForJob", timeout_s=60, repeatable=True)
DOWNLOAD = HeappeCall("POST", f"{_FILES}/DownloadFileFromCluster", 700, _SLOW_S)
UPLOAD = HeappeCall("POST", f"{_FILES}/UploadFilesToJobExecutionDir", 100_000_000, _SLOW_S)


def encode(call: HeappeCall, body: dict[str, Any]) -> bytes:
    """Encode as compact JSON. Raises ``HeappeFailed`` with ``TOO_LARGE`` if the server would refuse
    its size."""
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    if len(data) > call.limit:
        raise HeappeFailed(
            SiteFault.TOO_LARGE,
            f"the body has {len(data)} bytes, {call.limit} are allowed",
            call=call.name,
        )

    return data


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    state: JobState
    name: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""
    error: str = ""
    started: datetime | None = None


@dataclass(frozen=True, slots=True)
class HeappeJob:
    """A job. ``project``: the accounting string; empty if unknown. Times are as the server sent
    them: without a zone, or in the server's."""

    id: int
    name: str
    state: JobState
    task: Task
    created: datetime | None = None
    started: datetime | None = None
    project: str = ""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A tunnel. ``port``: its port on the server's own loopback, needed to close the tunnel."""

    task_id: int
    port: int
    node_ip: str
    node_port: int


@dataclass(frozen=True, slots=True)
class Template:
    id: int
    name: str
    enabled: bool
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type. ``accounting``: project ids and templates by accounting string. ``by_gpu``:
    cores are GPUs."""

    id: int
    name: str
    cluster_id: int
    cluster: str
    nodes: int
    cores: int
    max_walltime_s: int
    transfer_method: int
    by_gpu: bool
    projects: dict[str, Project]


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    accounting: str
    templates: tuple[Template, ...] = ()
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    task_id: int
    kind: int
    content: str = field(repr=False)


def parse_time(value: Any) -> datetime | None:
    """Parse one of the server's times. Without an offset, it is in UTC, at least in 6.3. At most
    six fractional digits are read."""
    if not isinstance(value, str) or value.startswith("0001-"):
        return None

    head, dot, rest = value.partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        value = f"{head}.{rest[: min(digits, 6)]}{rest[digits:]}"

    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None

    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def parse_job(value: dict[str, Any]) -> HeappeJob:
    tasks = [task for task in _list(value.get("Tasks")) if isinstance(task, dict)]
    task = tasks[0] if tasks else {}
    node_type = _dict(task.get("NodeType"))

    return HeappeJob(
        _int(value.get("Id")),
        str(value.get("Name") or ""),
        state=_state(value.get("State")),
        task=Task(
            _int(task.get("Id")),
            _state(task.get("State")),
            name=str(task.get("Name") or ""),
            nodes=tuple(map(str, _list(task.get("AllocatedCoreIds")))),
            reason=str(task.get("Reason") or ""),
            error=str(task.get("ErrorMessage") or ""),
            started=parse_time(task.get("StartTime")),
        ),
        created=parse_time(value.get("CreationTime")),
        started=parse_time(value.get("StartTime")),
        project=str(_dict(node_type.get("Project")).get("AccountingString") or ""),
    )


def parse_jobs(value: Any) -> list[HeappeJob]:
    return [parse_job(job) for job in _list(value) if isinstance(job, dict)]


def parse_tunnel(value: dict[str, Any]) -> Tunnel:
    return Tunnel(
        _int(value.get("SubmittedTaskId")),
        _int(value.get("Port")),
        str(value.get("NodeIPAddress") or ""),
        _int(value.get("NodePort")),
    )


def parse_node_types(clusters: Any) -> list[NodeType]:
    return [
        _node_type(cluster, node_type)
        for cluster in _list(clusters)
        if isinstance(cluster, dict)
        for node_type in _list(cluster.get("NodeTypes"))
        if isinstance(node_type, dict)
    ]


def _node_type(cluster: dict[str, Any], value: dict[str, Any]) -> NodeType:
    kind = str(_dict(value.get("ClusterNodeTypeAggregation")).get("AllocationType") or "").upper()
    projects = [
        parse_project(project)
        for project in _list(value.get("Projects"))
        if isinstance(project, dict)
    ]
    return NodeType(
        _int(value.get("Id")),
        str(value.get("Name") or ""),
        cluster_id=_int(cluster.get("Id")),
        cluster=str(cluster.get("Name") or ""),
        nodes=_int(value.get("NumberOfNodes")),
        cores=_int(value.get("CoresPerNode")),
        max_walltime_s=_int(value.get("MaxWalltime")),
        transfer_method=_int(value.get("FileTransferMethodId")),
        by_gpu="GPU" in kind or "ACN" in kind,
        projects={project.accounting: project for project in projects},
    )


def parse_project(value: dict[str, Any]) -> Project:
    templates = [
        template for template in _list(value.get("CommandTemplates")) if isinstance(template, dict)
    ]
    return Project(
        _int(value.get("Id")),
        str(value.get("AccountingString") or ""),
        tuple(
            Template(
                _int(template.get("Id")),
                str(template.get("Name") or ""),
                template.get("IsEnabled") is not False,
                tuple(
                    str(parameter.get("Identifier") or "")
                    for parameter in _list(template.get("TemplateParameters"))
                    if isinstance(parameter, dict)
                ),
            )
            for template in templates
        ),
        parse_time(value.get("EndDate")),
    )


def parse_file_parts(value: Any) -> list[FilePart]:
    return [
        FilePart(
            _int(part.get("SubmittedTaskInfoId")),
            _int(part.get("FileType")),
            str(part.get("Content") or ""),
        )
        for part in _list(value)
        if isinstance(part, dict)
    ]


def _state(value: Any) -> JobState:
    try:
        return JobState(value)
    except ValueError:
        return JobState.UNKNOWN


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
