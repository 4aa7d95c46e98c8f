"""Options of resource groups of kind hpc: what the jobs of their sessions ask of a site."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from moorage.common.model.base import Model, Seconds
from moorage.common.model.errors import MoorageError
from moorage.common.model.runtime_choice import SiteRuntimeChoice
from moorage.common.model.slots import parse_size
from moorage.common.model.spec_fields import Word

Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=256)]


def _check_size(value: str | int) -> str | int:
    try:
        parse_size(value)
    except MoorageError as error:
        raise ValueError(str(error)) from None
    return value


class SiteJob(Model):
    """What the job of a session asks of its site. An empty text: the default of the agent or the
    site."""

    cluster: Text = Field(default="", description="Cluster of the site.")
    node_type: Text = Field(
        default="", description="Type of the nodes, by the site's own name or number."
    )
    project: Text = Field(default="", description="Project that the site bills.")
    template: Text = Field(
        default="", description="Command template that is registered at the site (HEAppE)."
    )
    partition: Text = Field(default="", description="Slurm: partition.")
    qos: Text = Field(default="", description="Slurm: quality of service.")
    account: Text = Field(default="", description="Slurm: account.")
    options: Annotated[dict[Word, Text], Field(max_length=64)] = Field(
        default={}, description="Further options, as the runtime knows them."
    )


class HpcOptions(SiteJob):
    """Makes a resource group one of kind hpc: its sessions run as jobs of a site."""

    runtime: SiteRuntimeChoice = Field(description="Runtime of the agents of the group.")
    walltime_s: Seconds = Field(description="Runtime that jobs ask for, in seconds.")
    queue_timeout_s: Seconds | None = Field(
        default=None,
        description="Maximum time of a job in the queue of the site, in seconds; null: unlimited.",
    )
    node_cores: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Processors of a node, which a session may not exceed; null: not checked.",
    )
    node_memory: Annotated[str | int, AfterValidator(_check_size)] | None = Field(
        default=None, description="Memory of a node, such as 512GiB; null: not checked."
    )
    node_gpus: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="GPUs of a node; null: not checked."
    )
    successor_at: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.9,
        description=(
            "Part of the walltime after which the successor of a replica starts at the latest."
        ),
    )
