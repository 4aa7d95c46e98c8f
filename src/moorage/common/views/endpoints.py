"""REST models for endpoints, their replicas, revisions and scaling decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer

from moorage.common.model.labels import LabelChanges, UserLabels
from moorage.common.model.reasons import Reason
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.spec import EndpointSpec, Model, Name, NoNul, Seconds, Word
from moorage.common.model.spec_fields import Argument
from moorage.common.model.status import EndpointStatus, Status
from moorage.common.views.resources import StartTimes, View, masked, masked_spec


class ReplicaView(View):
    session_id: str
    name: str
    status: Status
    state: str = Field(
        default="",
        description=(
            "queued, loading, ready, busy (requests wait there), draining; empty once the "
            "replica ends."
        ),
    )
    revision: int = 1
    reason: Reason
    detail: str
    agent_id: str | None
    status_since: datetime
    log_tail: str = ""
    running: int = Field(default=0, description="Requests running in its engine.")
    waiting: int = Field(default=0, description="Requests waiting in its engine.")
    kv_cache: float | None = Field(
        default=None, description="Use of its KV cache, 0 to 1. null if unknown."
    )
    address: str = Field(
        default="", description="Host and port of its engine; empty until it listens."
    )
    unhealthy: str = Field(
        default="", description="Why its engine fails its health checks; empty if it passes them."
    )


class RolloutView(View):
    """Progress of the newest change to what the replicas run."""

    state: Literal["complete", "progressing", "canary", "waiting", "failed"] = Field(
        description=(
            "canary: the revision receives its share of the requests until it is promoted or "
            "rolled back. waiting: no replica is desired. failed: a revision was rolled back, "
            "and nothing has changed since."
        )
    )
    revision: int = Field(description="Revision that all replicas should have.")
    newest: int = Field(description="The newest revision.")
    updated: int = Field(description="Replicas of the revision.")
    ready: int = Field(description="Ready replicas of the revision.")
    old: int = Field(description="Replicas of other revisions.")
    canary: int = Field(
        default=0,
        description="Percentage of the requests that the revision receives; 0 means no canary.",
    )
    rolled_back: int | None = Field(
        default=None,
        description="Revision whose failure returned the endpoint to this one.",
    )
    reason: Reason = Field(default=Reason.NONE, description="Why that revision was rolled back.")
    detail: str = ""


class ScalingDecision(View):
    """Change of the desired number of replicas by autoscaling."""

    at: datetime
    from_replicas: int
    to_replicas: int
    rule: str = Field(description="Rule that decided; idle, wake, min or max.")
    detail: str
    inputs: dict[str, float] = Field(description="Load that the decision is based on.")


class RevisionView(View):
    """Settings that the replicas of an endpoint have or had. A revision never changes."""

    revision: int
    created_at: datetime
    created_by: str
    current: bool
    state: Literal["complete", "failed", ""] = Field(
        description=(
            "complete: all replicas had the revision and were ready. failed: it was rolled back."
        )
    )
    reason: Reason = Reason.NONE
    detail: str = ""
    spec: Annotated[dict[str, Any], PlainSerializer(masked)]


class LateSuccessor(View):
    """Replica whose walltime ends before enough other replicas are expected to be ready."""

    session_id: str = Field(description="Replica that ends.")
    ends_at: datetime
    expected_at: datetime | None = Field(
        description="When the next replica is expected to be ready. null if unknown."
    )
    reason: Reason = Field(
        default=Reason.NONE,
        description="`node-hours` if a node-hour quota holds back the next replica.",
    )


class EndpointView(View):
    id: str
    name: str
    status: EndpointStatus
    replicas: int = Field(description="Desired number of replicas.")
    ready: int = Field(description="Number of replicas that are ready.")
    reason: Reason = Field(
        default=Reason.NONE,
        description=(
            "Reason why the last replica failed, while the endpoint is failing; or "
            "`budget-exhausted`."
        ),
    )
    detail: str = ""
    failures: int = Field(
        default=0,
        description="Consecutive replica failures since the last replica that became ready.",
    )
    retry_at: datetime | None = None
    suspended_until: datetime | None = Field(
        default=None,
        description=(
            "An exhausted budget stops the replicas until this time, or until it is raised."
        ),
    )
    revision: int = Field(default=1, description="Revision that all replicas should have.")
    version: int = Field(
        default=1, description="Changes with every change made by a user; the ETag."
    )
    rollout: RolloutView | None = None
    created_at: datetime
    user: str = Field(default="", description="Owner: the user of the API key that created it.")
    project: str = ""
    shared_with: list[str] = Field(
        default=[], description='Other projects that may use it; "*" means all.'
    )
    user_labels: dict[str, str] = Field(default={})
    spec: Annotated[EndpointSpec, PlainSerializer(masked_spec)] | None = Field(
        default=None, description="null for viewers, and for projects that it is shared with."
    )
    running: int = Field(default=0, description="Requests running in its replicas' engines.")
    waiting: int = Field(
        default=0,
        description=(
            "Requests waiting in those engines, and requests that proxies hold for a replica."
        ),
    )
    kv_cache: float | None = Field(
        default=None, description="Mean use of the KV caches, 0 to 1. null if unknown."
    )
    late_successor: LateSuccessor | None = Field(
        default=None,
        description="Set while a walltime is expected to end before a successor is ready.",
    )
    warnings: list[str] = Field(
        default=[], description="Set only in the response to its creation or a change."
    )
    start_times: list[StartTimes] = Field(
        default=[], description="Start times of its jobs, by resource group of kind hpc."
    )
    needs_newer_manager: str = Field(
        default="",
        description=(
            "Part of the endpoint that this manager does not know and omits; a manager of the "
            "release that stored it must continue to handle it. Empty if none."
        ),
    )
    expected_at: datetime | None = Field(
        default=None,
        description=(
            "When the next replica is expected to be ready. null if none is starting or the time "
            "is unknown."
        ),
    )
    scalings: int = Field(
        default=0, description="How often autoscaling has changed the desired number of replicas."
    )
    sessions: list[ReplicaView] = Field(
        default=[], description="Live replicas, and those that ended most recently."
    )


class NewEndpoint(EndpointSpec):
    """The body of ``POST /v1/endpoints``."""

    EXAMPLE: ClassVar = {
        "name": "tiny",
        "engine": "llamacpp",
        "model": "/models/tiny.gguf",
        "replicas": 2,
    }

    shared_with: Annotated[list[Name | Literal["*"]], Field(max_length=1000)] = Field(
        default=[], description='Other projects that may see and use it; "*" means all.'
    )
    user_labels: UserLabels = Field(default={})


class Scale(Model):
    """The body of ``POST /v1/endpoints/{name}/scale``."""

    EXAMPLE: ClassVar = {"replicas": 3}

    replicas: Annotated[int, Field(ge=0, le=1000)]


class RolloutUndo(Model):
    """The body of ``POST /v1/endpoints/{name}/rollout/undo``."""

    EXAMPLE: ClassVar = {"revision": 3}

    revision: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The revision to return to. null means the previously served one.",
    )


_Patch = dict[str, Any]


class EndpointPatch(Model):
    """The body of ``PATCH /v1/endpoints/{name}``: a JSON merge patch (RFC 7396) of the endpoint's
    spec. Objects are merged, null removes or resets a field, and absent fields remain unchanged.
    Changes that affect the replicas are rolled out."""

    EXAMPLE: ClassVar = {"resources": {"mem": "8GiB"}, "user_labels": {"stage": "prod"}}

    engine: Literal["llamacpp", "vllm", "custom"] | None = None
    model: NoNul | None = None
    args: list[Argument] | None = None
    command: list[Argument] | None = None
    probe: _Patch | None = None
    env: dict[str, str | None] | None = None
    secret_env: dict[str, str | None] | None = None
    runtime: RuntimeChoice | None = None
    image: str | None = None
    resources: dict[str, str | int | float | None] | None = None
    resource_group: Name | None = None
    resource_groups: list[Name] | None = None
    priority: int | None = None
    start_timeout_s: float | None = None
    stop_grace_s: float | None = None
    max_attempts: int | None = None
    arch: Word | None = None
    labels: dict[Word, str | None] | None = None
    agents: list[Name] | None = None
    preemptible: bool | None = None
    overlap: Literal["allowed", "never"] | None = None
    max_lifetime_s: Seconds | None = None
    replicas: int | None = None
    autoscale: _Patch | None = None
    rollout: _Patch | None = None
    routing: _Patch | None = None
    adapters: list[_Patch] | None = None
    limits: _Patch | None = None
    shared_with: Annotated[list[Name | Literal["*"]], Field(max_length=1000)] | None = None
    user_labels: LabelChanges | None = None

    def merged(self, spec: EndpointSpec, replicas: int) -> EndpointSpec:
        """``spec`` with these changes. ``replicas``: the currently desired number. Raises
        ``ValidationError``."""
        changes = self.model_dump(
            mode="json", exclude_unset=True, exclude={"shared_with", "user_labels"}
        )
        fields = merge(spec.model_dump(mode="json") | {"replicas": replicas}, changes)
        scale = fields.get("autoscale")
        if scale and "replicas" not in changes:
            least = scale.get("min", 1)
            most = scale.get("max", 1)
            if isinstance(least, int) and isinstance(most, int):
                fields["replicas"] = min(max(replicas, least), most)

        return EndpointSpec.model_validate(fields)


def merge(target: Any, patch: Any) -> Any:
    """Merge as specified by RFC 7396."""
    if not isinstance(patch, dict):
        return patch

    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)

    return merged
