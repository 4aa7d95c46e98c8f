"""Options of resource groups of kind hpc: what their sessions' jobs request from a site."""

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
    """What a session's job requests from its site. An empty text selects the default of the agent
    or the site."""

    cluster: Text = Field(default="", description="Cluster at the site.")
    node_type: Text = Field(default="", description="Node type, by the site's own name or number.")
    project: Text = Field(default="", description="Project that the site bills.")
    template: Text = Field(
        default="", description="Command template registered at the site (HEAppE)."
    )
    partition: Text = Field(default="", description="Slurm: partition.")
    qos: Text = Field(default="", description="Slurm: quality of service.")
    account: Text = Field(default="", description="Slurm: account.")
    options: Annotated[dict[Word, Text], Field(max_length=64)] = Field(
        default={}, description="Further options that the runtime understands."
    )


class HpcOptions(SiteJob):
    """Marks a resource group as kind hpc: its sessions run as jobs of a site."""

    runtime: SiteRuntimeChoice = Field(description="Runtime of the group's agents.")
    walltime_s: Seconds = Field(description="Walltime that jobs request, in seconds.")
    queue_timeout_s: Seconds | None = Field(
        default=None,
        description=(
            "Maximum time that a job may wait in the site's queue, in seconds; null means "
            "unlimited."
        ),
    )
    node_cores: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Processors of a node; a session may not request more. null means not checked.",
    )
    node_memory: Annotated[str | int, AfterValidator(_check_size)] | None = Field(
        default=None, description="Memory of a node, such as 512GiB; null means not checked."
    )
    node_gpus: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="GPUs of a node; null means not checked."
    )
    successor_at: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.9,
        description=(
            "Fraction of the walltime after which a replica's successor starts at the latest."
        ),
    )
