"""REST models of what requests and sessions use, and of the limits on it."""

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
    """Accepts comma-separated and repeated values."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list):
        return value
    return [name for part in parts for one in str(part).split(",") if (name := one.strip())]


class UsageSplit(Model):
    """What usage is split by, and whose it is."""

    by: Annotated[list[Dimension], BeforeValidator(_split), Field(max_length=20)] = Field(
        default=["project", "model"],
        description="Comma-separated or repeated: project, user, key, model, endpoint, session, "
        "resource_group, device.",
    )
    bucket: Bucket = Field(
        default="none",
        description="Also split by hour, day, week (from Monday), month or year, in UTC.",
    )
    project: NoNul | None = Field(default=None, description="Only of this project.")
    user: NoNul | None = Field(default=None, description="Only of this user.")
    key: NoNul | None = Field(default=None, description="Only of this key, by name or id.")
    model: NoNul | None = Field(default=None, description="Only of this model.")


class ModelUsage(View):
    """What requests for models and kernels of sessions used. null: not split by that; "": not
    known, or no key was required. Kernels are counted in whole seconds, from RUNNING to their end
    or until now."""

    at: datetime | None = Field(
        default=None, description="Start of the hour, day, week, month or year."
    )
    project: str | None = Field(default=None, description="That of the key, or of the session.")
    user: str | None = Field(
        default=None, description="That of the key, or the owner of the session."
    )
    key_id: str | None = None
    key: str | None = Field(
        default=None, description="Name of the key; null also for keys of others."
    )
    model: str | None = Field(default=None, description="Of a replica: the name of its endpoint.")
    endpoint: str | None = None
    session_id: str | None = Field(default=None, description="The session or the replica.")
    resource_group: str | None = Field(
        default=None, description="That of the session or the replica."
    )
    device: str | None = Field(default=None, description="Model of the GPU.")
    requests: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int = Field(description="Those of tokens_in that a cache had.")
    gpu_ms: int = Field(default=0, description="GPUs times milliseconds; half a GPU counts half.")
    cpu_ms: int = Field(default=0, description="CPUs times milliseconds.")
    memory_mib_s: int = Field(default=0, description="MiB of memory times seconds.")
    node_ms: int = Field(default=0, description="Nodes of sites times milliseconds.")
    cost: int = Field(
        default=0, description="By the prices of each hour, in millionths of the currency."
    )


class LimitUse(View):
    limit: int
    used: int = Field(description="As the proxies last reported it, a few seconds ago at most.")


class LimitView(View):
    """The limits of a key, a project or a model, and their use. null: no limit."""

    scope: LimitScope
    name: str
    project: str
    requests_per_minute: LimitUse | None = Field(
        default=None, description="Requests of the last 60 seconds."
    )
    tokens_per_minute: LimitUse | None = Field(
        default=None,
        description="Tokens of the last 60 seconds, those reserved by running requests included.",
    )
    concurrent_requests: LimitUse | None = None
