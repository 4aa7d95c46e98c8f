"""Specifications of sessions and endpoints, as users write them, with validation.

``model.kernel`` defines the specification that agents receive.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from moorage.common.model import features, service_ports
from moorage.common.model.adapters import adapter_args
from moorage.common.model.base import Model as Model
from moorage.common.model.base import Name as Name
from moorage.common.model.base import Seconds as Seconds
from moorage.common.model.checkpointing import Checkpoint, find_checkpoint_problem
from moorage.common.model.clusters import Cluster as Cluster
from moorage.common.model.clusters import Dependency as Dependency
from moorage.common.model.clusters import SubKernels as SubKernels
from moorage.common.model.clusters import dependency, drop_single_kernel_cluster
from moorage.common.model.hpc_options import SiteJob
from moorage.common.model.idle import IdleChoice
from moorage.common.model.kernel import WITH_DEFAULT_IMAGE
from moorage.common.model.labels import UserLabels
from moorage.common.model.program_ports import Port as Port
from moorage.common.model.program_ports import Probe as Probe
from moorage.common.model.reload import Reload, find_reload_problem
from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.runtimes import DEFAULT_RUNTIME, IMAGE_RUNTIME, RUNTIMES, traits_of
from moorage.common.model.serving import Adapter, Autoscale, ModelLimits, Rollout, Routing
from moorage.common.model.spec_fields import Argument, Env, Image, Resources, check_env
from moorage.common.model.spec_fields import NoNul as NoNul
from moorage.common.model.spec_fields import Word as Word
from moorage.common.model.status import SessionType
from moorage.common.model.subscriptions import NotifyTarget, SessionEvent
from moorage.common.model.task_lists import REQUEUES, TaskList
from moorage.common.model.timestamps import Timestamp

# Default of ``lease_s``; session_place.sql repeats it.
LEASE_S = 600.0
DEFAULT_PRIORITY = 10


class Workload(Model):
    """A kernel's workload: program, runtime and resources. Shared by sessions and endpoints."""

    engine: Literal["llamacpp", "vllm", "custom"] = Field(
        default="custom", description="vllm and llamacpp serve `model`; custom runs `command`."
    )
    model: NoNul | None = Field(
        default=None, description="vllm: a path or a hub id. llamacpp: a GGUF file."
    )
    args: list[Argument] = Field(
        default=[], description="Additional arguments for the engine, passed unchanged."
    )
    command: list[Argument] = Field(
        default=[],
        description=(
            "custom: program and arguments. `{port}`, `{host}` and `{model}` are replaced if the "
            "program serves requests (endpoints, sessions with `probe`) or has service ports; "
            "`{{port}}` stands for the text `{port}`. An interactive session without a command "
            "idles until it is stopped."
        ),
    )
    probe: Probe | None = Field(
        default=None, description="Readiness probe of custom engines that serve requests."
    )
    env: Env = Field(default={})
    secret_env: Annotated[dict[str, Name], AfterValidator(check_env)] = Field(
        default={},
        description="Variables whose values are the project's stored secrets: {variable: secret}.",
    )
    runtime: RuntimeChoice = Field(
        default=DEFAULT_RUNTIME,
        description=(
            "Runtime on the node. docker requires `image`, except for engine vllm; custom:NAME "
            "selects a plug-in. Resource groups of kind hpc have their own."
        ),
    )
    image: Image | None = Field(
        default=None,
        description=(
            "Image: name, name:tag or name@digest. vllm without one uses the node's default."
        ),
    )
    resources: Resources = Field(
        default={"cpu": 1, "mem": "1GiB"},
        description="Requested slots, such as {'cpu': 2, 'mem': '8GiB', 'cuda.device': 1}.",
    )
    resource_group: Name = "default"
    priority: Annotated[int, Field(ge=0, le=100)] = DEFAULT_PRIORITY
    start_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=900,
        description=(
            "Maximum time from SCHEDULED to RUNNING. After that, another agent is tried; the last "
            "failure is an ERROR."
        ),
    )
    stop_grace_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10, description="Time between SIGTERM and SIGKILL, in seconds."
    )
    max_attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=3, description="Maximum number of start attempts, each on a different agent."
    )
    arch: Word | None = Field(
        default=None, description="Required CPU architecture, such as x86_64."
    )
    labels: Annotated[dict[Word, NoNul], Field(max_length=64)] = Field(
        default={}, description="Labels that the agent must have."
    )
    agents: Annotated[list[Name], Field(max_length=1000)] = Field(
        default=[], description="Ids of eligible agents; empty means all."
    )
    preemptible: bool | None = Field(
        default=None,
        description=(
            "Whether the session may be preempted, if its resource group allows preemption. "
            "null means true, except for interactive sessions."
        ),
    )
    reload: Reload | None = Field(
        default=None,
        description=(
            "How `moorage reload` asks the program to read its settings again; null means that "
            "reloads are not supported."
        ),
    )
    overlap: Literal["allowed", "never"] | None = Field(
        default=None,
        description="Whether a new attempt may start while an earlier one may still run. null "
        "means allowed for replicas of endpoints, never for other sessions.",
    )

    def _may_run_idle(self) -> bool:
        """Return whether the kernel may run without a program (interactive sessions)."""
        return False

    @property
    def secrets(self) -> frozenset[str]:
        """The stored secrets that the workload refers to."""
        return frozenset(self.secret_env.values())

    @model_validator(mode="after")
    def _check_secret_env(self) -> Self:
        if twice := sorted(self.env.keys() & self.secret_env.keys()):
            raise ValueError(
                f"`env` and `secret_env` both set {twice[0]}; remove it from one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        images = traits_of(self.runtime).images
        if images and not self.image and self.engine not in WITH_DEFAULT_IMAGE:
            raise ValueError(f"runtime {self.runtime!r} requires `image`")
        if self.image and not images:
            raise ValueError(f"`image` requires runtime {IMAGE_RUNTIME!r}, not {self.runtime!r}")

        if self.engine == "custom":
            if not self.command and not self._may_run_idle():
                raise ValueError(
                    "engine 'custom' requires `command`: the program and its arguments"
                )

            if self.command and not self.command[0]:
                raise ValueError("the first element of `command` is empty; it must be a program")
        else:
            if not self.model:
                raise ValueError(f"engine {self.engine!r} requires `model`")
            if self.command:
                raise ValueError(f"engine {self.engine!r} does not take `command`; use `args`")

        return self


class SessionSpec(Workload):
    """Session specification: the body of ``POST /v1/sessions``."""

    EXAMPLE: ClassVar = {
        "name": "train-1",
        "command": ["python", "train.py"],
        "resources": {"cpu": 4, "mem": "16GiB", "cuda.device": 1},
        "user_labels": {"team": "vision"},
    }

    name: Name | None = Field(
        default=None, description="Unique among live sessions; generated if absent."
    )
    type: SessionType = SessionType.BATCH
    user_labels: UserLabels = Field(default={})
    pending_timeout_s: Seconds | None = Field(
        default=None, description="Maximum time in PENDING, in seconds; null means unlimited."
    )
    timeout_s: Seconds | None = Field(
        default=None, description="Maximum runtime of a batch session, per run, in seconds."
    )
    max_lifetime_s: Seconds | None = Field(
        default=None, description="Maximum runtime of any session, per run, in seconds."
    )
    idle: IdleChoice | None = Field(
        default=None, description="Interactive: when the session is considered idle and ends."
    )
    queue_timeout_s: Seconds | None = Field(
        default=None,
        description=(
            "Resource groups of kind hpc: maximum time in the site's queue, in seconds. null means "
            "as the group specifies."
        ),
    )
    job: SiteJob | None = Field(
        default=None,
        description=(
            "What its job requests from the site. Set by the resource group, not by requests."
        ),
    )
    walltime_s: Seconds | None = Field(
        default=None,
        description=(
            "Resource groups of kind hpc: walltime requested from the site, in seconds, at most "
            "the group's. null means as the group specifies."
        ),
    )
    retries: Annotated[int, Field(ge=0, le=20)] = Field(
        default=0,
        description=(
            "Batch: how often the program is requeued after it failed, was killed or disappeared."
        ),
    )
    on_lost_agent: Literal["requeue", "wait", "fail"] | None = Field(
        default=None,
        description=(
            "Batch: action when the agent is LOST. requeue: the node ends the program after "
            "`lease_s` without contact, then the session runs again; requires `retries`. wait: "
            "the program keeps running, and the session waits for the agent. fail: the session "
            "ends in ERROR. null means requeue with `retries`, otherwise fail."
        ),
    )
    lease_s: Annotated[float, Field(ge=5, le=604_800)] | None = Field(
        default=None,
        description=(
            "on_lost_agent requeue: seconds that the program may run without contact between its "
            f"node and a manager. null means {LEASE_S:.0f}."
        ),
    )
    retry_backoff_s: Annotated[float, Field(gt=0, le=300)] = Field(
        default=5,
        description="Backoff before the first retry, in seconds; it doubles each time, up to 300.",
    )
    depends_on: Annotated[
        list[Annotated[Dependency, BeforeValidator(dependency)]], Field(max_length=100)
    ] = Field(default=[], description="Sessions that must end first. A bare name requires success.")
    dependency_failed: Literal["end", "wait"] = Field(
        default="end",
        description=(
            "Action if a dependency ends otherwise: cancel this session, or keep it pending."
        ),
    )
    starts_at: Timestamp | None = Field(
        default=None,
        description="Batch: earliest start, in RFC 3339. pending_timeout_s counts from then.",
    )
    reuse: ReusePolicy | None = Field(
        default=None,
        description=(
            "Batch: whether the result of an equal session of the project is reused. success: "
            "the result of one that succeeded. live: the run of one that has not ended is "
            "shared. both, or never. null means as the resource group specifies."
        ),
    )
    tasks: TaskList | None = Field(
        default=None,
        description=(
            "Batch: list of tasks. `command` runs once for each, several at a time, and the session "
            "succeeds if all do. null means that `command` runs once."
        ),
    )
    cluster: Annotated[Cluster | None, AfterValidator(drop_single_kernel_cluster)] = Field(
        default=None,
        description=(
            "Cluster of several kernels, each with its own `resources`; null means one kernel."
        ),
    )

    qos: Name | None = Field(
        default=None,
        description=(
            "Batch and interactive: quality of service, with its priority, limits and price factor."
        ),
    )

    ports: Annotated[list[Port], Field(max_length=service_ports.MAX_PORTS)] = Field(
        default=[], description="Service ports, reached through the proxy with an access token."
    )

    workspace: Literal["keep", "drop"] | None = Field(
        default=None,
        description=(
            "Working directory on the node (/workspace in containers). drop: removed with the "
            "kernel. keep: kept on the node, where retries find it, until it is deleted."
        ),
    )

    notify: Annotated[
        dict[NotifyTarget, list[SessionEvent]],
        Field(max_length=16),
    ] = Field(
        default={},
        description=(
            "Events to report, by target: the name of one of the caller's subscriptions, `mail`, "
            "an e-mail address or a URL."
        ),
    )

    checkpoint: Checkpoint | None = Field(
        default=None,
        description=(
            "How the program is asked to save its state before it is stopped: when the session "
            "is preempted, its agent is drained, its time is over, or on request. null means that "
            "it receives only SIGTERM."
        ),
    )

    def _devices(self) -> list[str]:
        sub = self.cluster.sub if self.cluster is not None else None
        slots = [*self.resources, *(sub.resources or () if sub is not None else ())]
        return [slot for slot in slots if "." in slot]

    def _may_run_idle(self) -> bool:
        return self._has(features.Feature.IDLE_PROGRAM)

    def _has(self, feature: features.Feature) -> bool:
        return feature in features.FEATURES[self.type]

    @model_validator(mode="before")
    @classmethod
    def _refuse_planned(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("tasks") and "retries" not in given:
            given = given | {"retries": REQUEUES}  # a requeued session continues its list
        return features.refuse_planned(given)

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        if wrong := service_ports.find_problem(port.declared() for port in self.ports):
            raise ValueError(f"ports: {wrong}")

        named = next((port for port in self.ports if port.port), None)
        if named is not None and not traits_of(self.runtime).own_network:
            raise ValueError(
                f"ports: {named.name!r} sets port {named.port}, but runtime {self.runtime!r} "
                "shares the ports of the node: omit the port and let the program listen on "
                f"`{{port:{named.name}}}`"
            )

        return self

    @model_validator(mode="after")
    def _check_reload(self) -> Self:
        if self.reload is not None and (wrong := self.reload_problem(self.reload)):
            raise ValueError(wrong)
        if self.checkpoint is not None and (wrong := find_checkpoint_problem(self.runtime)):
            raise ValueError(wrong)
        return self

    def reload_problem(self, reload: Reload) -> str:
        """Explain why the session cannot be reloaded this way; "" if it can."""
        serves = self.type is SessionType.INFERENCE or self.probe is not None
        ports = [port.declared() for port in self.ports]
        return find_reload_problem(
            reload, self.runtime, ports=ports, env=self.env.items(), serves=serves
        )

    @model_validator(mode="after")
    def _check_type_features(self) -> Self:
        given = [name for name in features.FIELDS if getattr(self, name, None)]
        if wrong := features.find_problem(self.type, given):
            raise ValueError(wrong)

        if self.on_lost_agent == "requeue" and not self.retries:
            raise ValueError(
                "`on_lost_agent` requeue runs the program again; set `retries` to 1 or more"
            )

        if self.lease_s is not None and self.lost_agent_policy != "requeue":
            raise ValueError("`lease_s` applies to batch sessions whose `on_lost_agent` is requeue")
        if self.workspace and self.cluster:
            raise ValueError("`workspace` applies to sessions of one kernel, not to a `cluster`")

        if not self._has(features.Feature.DEVICES) and (held := self._devices()):
            raise ValueError(
                f"{self.type} sessions hold no devices: remove {held[0]!r} from `resources`"
            )

        if self.engine != "custom" and not self._has(features.Feature.MODEL_ENGINES):
            raise ValueError(f"engine {self.engine!r} serves a model and requires type 'inference'")
        if self.type is SessionType.INFERENCE and self.engine == "custom" and self.probe is None:
            raise ValueError("a custom inference session requires `probe`")

        return self

    @model_validator(mode="after")
    def _check_tasks(self) -> Self:
        if self.tasks is None:
            return self

        if self.engine != "custom":
            raise ValueError(f"`tasks` requires engine 'custom', not {self.engine!r}")
        if not traits_of(self.runtime).outputs:
            named = [name for name, traits in RUNTIMES.items() if traits.outputs]
            raise ValueError(f"`tasks` requires runtime {' or '.join(named)}, not {self.runtime!r}")
        if self.reuse not in (None, "never"):
            raise ValueError("`reuse` does not apply to sessions with `tasks`: remove one of them")
        if self.probe is not None or self.ports:
            raise ValueError("`tasks` does not go with `probe` or `ports`: tasks serve nothing")
        return self

    @model_validator(mode="after")
    def _check_cluster(self) -> Self:
        if self.cluster is None:
            return self

        if self.engine != "custom":
            raise ValueError(
                f"engine {self.engine!r} runs as one kernel; `cluster` requires engine 'custom'"
            )

        sub = self.cluster.sub
        if sub is not None and sub.image is not None and not traits_of(self.runtime).images:
            raise ValueError(
                f"`cluster.sub.image` requires runtime {IMAGE_RUNTIME!r}, not {self.runtime!r}"
            )

        if sub is not None and sub.command and not sub.command[0]:
            raise ValueError(
                "the first element of `cluster.sub.command` is empty; it must be a program"
            )

        if 0 < len(self.agents) < self.cluster.size and self.cluster.mode == "multi-node":
            raise ValueError(
                f"a multi-node cluster of {self.cluster.size} requires as many agents, but "
                "`agents` lists "
                f"{len(self.agents)}"
            )

        return self

    @property
    def lost_agent_policy(self) -> Literal["requeue", "wait", "fail"]:
        """``on_lost_agent``, with its default applied."""
        return self.on_lost_agent or ("requeue" if self.retries else "fail")

    @property
    def stop_s(self) -> float:
        """Maximum time that its programs may take to stop, in seconds."""
        return self.stop_grace_s + (self.checkpoint.grace_s if self.checkpoint is not None else 0)

    @property
    def size(self) -> int:
        """Number of kernels."""
        return self.cluster.size if self.cluster is not None else 1

    @property
    def agents_needed(self) -> int:
        """Number of different agents that the session occupies."""
        return self.size if self.cluster is not None and self.cluster.mode == "multi-node" else 1


class EndpointSpec(Workload):
    """Endpoint specification: the body of ``POST /v1/endpoints``."""

    name: Name = Field(description="Unique name, which clients send as `model`.")
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=1, description="Number of replicas; with `autoscale`, the initial number."
    )
    autoscale: Autoscale | None = Field(
        default=None, description="null means that the number of replicas is fixed."
    )
    rollout: Rollout = Rollout()
    routing: Routing = Routing()
    resource_groups: Annotated[list[Name], Field(max_length=16)] = Field(
        default=[],
        description=(
            "Resource groups in order of preference, instead of `resource_group`. A replica that "
            "finds no room in one group is placed in the next."
        ),
    )
    adapters: Annotated[list[Adapter], Field(max_length=256)] = Field(
        default=[],
        description="LoRA adapters, served as ENDPOINT:NAME. Changes are rolled out. vllm only.",
    )
    limits: ModelLimits | None = Field(
        default=None, description="Limits on all requests to the endpoint; null means none."
    )
    max_lifetime_s: Seconds | None = Field(
        default=None,
        description="Maximum runtime of a replica; a successor becomes ready before it ends.",
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given

        scale = given.get("autoscale")
        groups = given.get("resource_groups")
        if (
            isinstance(scale, dict)
            and "replicas" not in given
            and isinstance(scale.get("min"), int)
        ):
            given = given | {"replicas": max(1, scale["min"])}

        if isinstance(groups, list) and groups:
            given = given | {"resource_group": groups[0]}

        return given

    @property
    def groups(self) -> list[str]:
        """Resource groups in order of preference, at least one."""
        return self.resource_groups or [self.resource_group]

    def in_groups(self) -> list[Self]:
        """The workload that would run in each of its groups."""
        return [self.model_copy(update={"resource_group": group}) for group in self.groups]

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        if self.engine == "custom" and self.probe is None:
            raise ValueError("a custom endpoint requires `probe`")

        reload = self.reload
        if reload and (
            wrong := find_reload_problem(reload, self.runtime, (), self.env.items(), serves=True)
        ):
            raise ValueError(wrong)

        scale = self.autoscale
        if scale is not None and not scale.min <= self.replicas <= scale.max:
            raise ValueError(
                f"`replicas` is {self.replicas}, but `autoscale` allows {scale.min} to {scale.max}"
            )

        names = [adapter.name for adapter in self.adapters]
        if names and self.engine != "vllm":
            raise ValueError(f"`adapters` requires engine 'vllm', not {self.engine!r}")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"`adapters` has two entries with the name {twice[0]!r}")

        if self.routing.apis and self.engine != "custom":
            raise ValueError(f"`routing.apis` requires engine 'custom', not {self.engine!r}")

        if any(
            fallback.url is None and fallback.model == self.name
            for fallback in self.routing.fallbacks
        ):
            raise ValueError(f"`routing.fallbacks` names {self.name!r} itself; name another model")

        return self

    def session(self, name: str, group: str | None = None) -> SessionSpec:
        """Return the specification of one replica. ``group``: replaces the first group."""
        fields = self.template() | {"resource_group": group or self.groups[0]}
        fields.pop("adapters", None)
        fields["args"] += adapter_args(self.name, self.adapters)
        return SessionSpec(**fields, name=name, type=SessionType.INFERENCE)

    @property
    def secrets(self) -> frozenset[str]:
        """Stored secrets that the endpoint refers to."""
        keys = (
            fallback.secret for fallback in self.routing.fallbacks if fallback.secret is not None
        )
        return frozenset((*super().secrets, *keys))

    def template(self) -> dict[str, Any]:
        """The part that a replica runs. A change to it creates a new revision."""
        left_out = {
            "name",
            "replicas",
            "autoscale",
            "rollout",
            "routing",
            "limits",
            "resource_groups",
        }
        left_out |= {name for name in ("adapters", "secret_env") if not getattr(self, name)}
        return self.model_dump(mode="json", exclude=left_out, exclude_none=True)
