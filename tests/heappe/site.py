"""The configuration of the site behind the test server: users, project, cluster, node types and
command templates, and HEAppE's intervals."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

SUBMITTER = "Submitter"
MANAGER = "Manager"
REPORTER = "Reporter"
ADMINISTRATOR = "Administrator"


@dataclass(frozen=True)
class Timing:
    """HEAppE's defaults, in seconds. All are measured on the server's clock, except
    ``http_timeout_s``."""

    poll_s: float = 30.0
    session_s: float = 900.0
    cache_s: float = 10.0
    clusters_cache_s: float = 9000.0
    tunnel_idle_s: float = 1800.0
    http_timeout_s: float = 10.0


@dataclass(frozen=True)
class User:
    id: int
    name: str
    roles: tuple[str, ...] = (SUBMITTER,)

    @property
    def password(self) -> str:
        return f"secret-{self.name}"


@dataclass(frozen=True)
class Template:
    """``command``: the executable on the cluster, for back ends that run programs; it receives the
    values of ``parameters`` as arguments, in this order."""

    id: int
    name: str
    node_type: int
    parameters: tuple[str, ...] = ("args_b64", "args_b64_2", "args_b64_3", "args_b64_4")
    enabled: bool = True
    command: str = "true"


@dataclass(frozen=True)
class NodeType:
    """``cluster_id``: 0 for the site's first cluster."""

    id: int
    name: str
    allocation: str
    nodes: int = 4
    cores: int = 8
    max_walltime_s: int = 172_800
    queue: str = "qgpu"
    cluster_id: int = 0


@dataclass(frozen=True)
class Project:
    id: int
    accounting: str
    ends_in_days: float = 365.0


@dataclass(frozen=True)
class Site:
    """``more_clusters``: the id and name of each further cluster."""

    cluster_id: int = 2
    cluster: str = "bench"
    more_clusters: tuple[tuple[int, str], ...] = ()
    file_transfer: int = 3
    zone: str = "Europe/Prague"
    bearer: bool = False
    users: tuple[User, ...] = (
        User(1, "agent"),
        User(2, "other"),
        User(3, "manager", (SUBMITTER, MANAGER)),
        User(4, "reporter", (REPORTER,)),
    )
    projects: tuple[Project, ...] = (Project(1, "EXA-00-1"), Project(2, "OLD-00-1", -1.0))
    node_types: tuple[NodeType, ...] = (
        NodeType(7, "gpu", "ACN GPU"),
        NodeType(8, "cpu", "CPU", cores=36, queue="qcpu"),
    )
    templates: tuple[Template, ...] = (
        Template(11, "engine", 7),
        Template(12, "engine-cpu", 8),
        Template(13, "retired", 7, enabled=False),
    )
    ports: tuple[int, int] = (4000, 4100)
    prefix: str = ""

    @property
    def clusters(self) -> dict[int, str]:
        return dict([(self.cluster_id, self.cluster), *self.more_clusters])

    def node_type(self, number: int) -> NodeType | None:
        return next((found for found in self.node_types if found.id == number), None)

    def template(self, number: int) -> Template | None:
        return next((found for found in self.templates if found.id == number), None)

    def user(self, name: str) -> User | None:
        return next((found for found in self.users if found.name == name), None)

    def project(self, number: int) -> Project | None:
        return next((found for found in self.projects if found.id == number), None)


def stamp(moment: datetime | None, zone: str = "") -> str | None:
    """A time as .NET writes it: seven fraction digits; ``zone`` is the suffix after them."""
    if moment is None:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}0{zone}"


def project_view(
    site: Site, project: Project, now: datetime, node_type: NodeType | None = None
) -> dict:
    templates = (
        [] if node_type is None else [t for t in site.templates if t.node_type == node_type.id]
    )
    end = (now.astimezone(UTC) + timedelta(days=project.ends_in_days)).replace(tzinfo=None)
    return {
        "Id": project.id,
        "Name": project.accounting,
        "Description": f"Project {project.accounting}",
        "AccountingString": project.accounting,
        "StartDate": "2026-01-01T00:00:00",
        "EndDate": stamp(end),
        "UsageType": 1,
        "UseAccountingStringForScheduler": True,
        "IsOneToOneMapping": False,
        "KeyScriptsDirectoryPath": "~/.key_scripts/",
        "CommandTemplates": [template_view(template) for template in templates],
        "ClusterProjectStoragePaths": [
            {
                "ClusterId": cluster_id,
                "ClusterName": name,
                "ScratchStoragePath": "/scratch",
                "ProjectStoragePath": "/project",
            }
            for cluster_id, name in site.clusters.items()
        ],
    }


def template_view(template: Template) -> dict[str, Any]:
    return {
        "Id": template.id,
        "Name": template.name,
        "Description": f"Template {template.name}",
        "ExtendedAllocationCommand": None,
        "IsGeneric": False,
        "IsEnabled": template.enabled,
        "CreatedFromGenericTemplateId": None,
        "TemplateParameters": [
            {"Identifier": name, "Description": f"Parameter {name}"} for name in template.parameters
        ],
    }


def cluster_view(
    site: Site, cluster_id: int, now: datetime, callback: bool, *, wanted: list[str]
) -> dict[str, Any]:
    projects = [
        p for p in site.projects if p.ends_in_days > 0 and (not wanted or p.accounting in wanted)
    ]
    kinds = []
    for kind in site.node_types:
        if (kind.cluster_id or site.cluster_id) != cluster_id:
            continue
        if not projects or not any(template.node_type == kind.id for template in site.templates):
            continue

        aggregation = {
            "Id": kind.id,
            "Name": kind.name,
            "Description": None,
            "AllocationType": kind.allocation,
            "ValidityFrom": "2020-01-01T00:00:00",
            "ValidityTo": None,
        }
        kinds.append(
            {
                "Id": kind.id,
                "Name": kind.name,
                "Description": f"Node type {kind.name}",
                "ClusterId": cluster_id,
                "NumberOfNodes": kind.nodes,
                "CoresPerNode": kind.cores,
                "MaxWalltime": kind.max_walltime_s,
                "FileTransferMethodId": site.file_transfer,
                "Queue": kind.queue,
                "QualityOfService": None,
                "ClusterAllocationName": None,
                "ClusterNodeTypeAggregation": aggregation,
                "Accounting": [],
                "Projects": [project_view(site, project, now, kind) for project in projects],
            }
        )

    return {
        "Id": cluster_id,
        "Name": site.clusters[cluster_id],
        "Description": f"Cluster {site.clusters[cluster_id]}",
        "MasterNodeName": f"login.{site.clusters[cluster_id]}",
        "FileTransferMethodIds": [site.file_transfer],
        "NodeTypes": kinds,
        "UseCallback": callback,
    }
