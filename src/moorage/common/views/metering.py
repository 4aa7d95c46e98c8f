"""REST models for the usage of requests and sessions, and its limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from moorage.common.model.spec import Model, NoNul
from moorage.common.views.resources import View

Dimension = Literal[
    "project", "user", "key", "model", "endpoint", "session", "resource_group", "device"
]
Bucket = Literal["none", "hour", "day", "week", "month", "year"]
LimitScope = Literal["key", "project", "model"]


def _split(value: Any) -> Any:
    """Accept comma-separated and repeated values."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list):
        return value
    return [name for part in parts for item in str(part).split(",") if (name := item.strip())]


class UsageSplit(Model):
    """Dimensions by which usage is split, and filters."""

    by: Annotated[list[Dimension], BeforeValidator(_split), Field(max_length=20)] = Field(
        default=["project", "model"],
        description=(
            "Dimensions, comma-separated or repeated: project, user, key, model, endpoint, "
            "session, resource_group, device."
        ),
    )
    bucket: Bucket = Field(
        default="none",
        description=(
            "Period by which usage is also split: hour, day, week (from Monday), month or year, in "
            "UTC."
        ),
    )
    project: NoNul | None = Field(default=None, description="Only usage of this project.")
    user: NoNul | None = Field(default=None, description="Only usage of this user.")
    key: NoNul | None = Field(default=None, description="Only usage of this key, by name or id.")
    model: NoNul | None = Field(default=None, description="Only usage of this model.")


class ModelUsage(View):
    """Usage by model requests and by sessions' kernels.

    null means not split by that dimension; "" means unknown, or that no key was required. Kernels
    are counted in whole seconds, from RUNNING to their end or until now."""

    at: datetime | None = Field(
        default=None, description="Start of the hour, day, week, month or year."
    )
    project: str | None = Field(default=None, description="Project of the key or of the session.")
    user: str | None = Field(default=None, description="The key's user, or the session's owner.")
    key_id: str | None = None
    key: str | None = Field(
        default=None, description="Name of the key; also null for other users' keys."
    )
    model: str | None = Field(default=None, description="For a replica: the name of its endpoint.")
    endpoint: str | None = None
    session_id: str | None = Field(default=None, description="Name of the session or the replica.")
    resource_group: str | None = Field(
        default=None, description="Resource group of the session or the replica."
    )
    device: str | None = Field(default=None, description="Model of the GPU.")
    requests: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int = Field(description="Part of tokens_in that was found in a cache.")
    gpu_ms: int = Field(
        default=0, description="GPUs times milliseconds; half a GPU counts as half."
    )
    cpu_ms: int = Field(default=0, description="CPUs times milliseconds.")
    memory_mib_s: int = Field(default=0, description="MiB of memory times seconds.")
    node_ms: int = Field(default=0, description="Nodes of sites times milliseconds.")
    cost: int = Field(
        default=0, description="Cost at the prices of each hour, in millionths of the currency."
    )


class LimitUse(View):
    limit: int
    used: int = Field(description="Use, as last reported by the proxies at most a few seconds ago.")


class LimitView(View):
    """Limits of a key, a project or a model, and their use. null means no limit."""

    scope: LimitScope
    name: str
    project: str
    requests_per_minute: LimitUse | None = Field(
        default=None, description="Requests in the last 60 seconds."
    )
    tokens_per_minute: LimitUse | None = Field(
        default=None,
        description="Tokens in the last 60 seconds, including those reserved by running requests.",
    )
    concurrent_requests: LimitUse | None = None
