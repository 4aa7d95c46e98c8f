"""Clusters and dependencies in session specifications."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.common.model.base import Model, Name
from moorage.common.model.spec_fields import Argument, Env, Image, Resources

HOSTNAMES_RESOLVE = (
    "Whether the names main1, sub1, … of a cluster resolve in its kernels. false: they do not "
    "resolve in kernels that run outside a sandbox; MOORAGE_CLUSTER_ADDRESSES lists the "
    "addresses, in the order of MOORAGE_CLUSTER_HOSTS. null if the session is not a cluster."
)


class Dependency(Model):
    """Dependency on another session in the same project, which must end first."""

    session: Name = Field(
        description="Id or name. A name refers to the live session, or else to the most recent one."
    )
    on: Literal["success", "any", "failure"] = Field(
        default="success", description="Required outcome. success applies to batch sessions only."
    )


def dependency(value: Any) -> Any:
    """Expand a bare name to a dependency on that session's success."""
    return {"session": value} if isinstance(value, str) else value


class SubKernels(Model):
    """Settings of the sub kernels of a cluster. Absent fields are taken from main1."""

    command: list[Argument] = Field(default=[])
    image: Image | None = None
    env: Env = Field(default={}, description="Additional variables; they override those of main1.")
    resources: Resources | None = None


class Cluster(Model):
    """Cluster: several kernels that start and end together: main1, sub1, sub2, …"""

    size: Annotated[int, Field(ge=1, le=128)] = Field(
        description="Number of kernels, including main1. 1 means no cluster."
    )
    mode: Literal["single-node", "multi-node"] = Field(
        default="single-node", description="All kernels on one agent, or each on a different agent."
    )
    on_kernel_loss: Literal["end", "degrade"] = Field(
        default="end",
        description=(
            "Action when a running sub kernel is lost: end the session, or continue without the "
            "kernel. The loss of main1 always ends the session."
        ),
    )
    sub: SubKernels | None = Field(
        default=None, description="Settings in which the sub kernels differ from main1."
    )


def drop_single_kernel_cluster(value: Cluster | None) -> Cluster | None:
    """Drop a cluster of one kernel, because it is an ordinary session."""
    return None if value is not None and value.size == 1 else value
