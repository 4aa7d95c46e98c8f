"""What a user asks for, validated. What becomes of it for an agent is in ``kernel``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from moorage.common.model import service_ports
from moorage.common.model.errors import MoorageError
from moorage.common.model.kernel import IMAGED, WITH_DEFAULT_IMAGE
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.slots import parse_slots
from moorage.common.model.status import SessionType

_NAME = re.compile(r"^[A-Za-z0-9](?:[A-Za-z0-9._/:-]{0,126}[A-Za-z0-9])?$")
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def _check_name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(
            "a name has 1 to 128 letters, digits or any of . _ - / : and begins and ends with a letter "
            "or digit"
        )
    return value


def _check_env(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENV_NAME.match(name):
            raise ValueError(f"{name!r} is not an environment variable name")
        if name.startswith("MOORAGE_"):
            raise ValueError(f"{name!r} is ours: names beginning with MOORAGE_ are set by the agent")
        if "\0" in text:
            raise ValueError(f"the value of {name!r} contains a NUL character")
    return value


def _check_slots(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("resources is an object like {'cpu': 2, 'mem': '4GiB', 'cuda.device': 1}")
    try:
        parse_slots(value)
    except MoorageError as error:
        raise ValueError(str(error)) from None
    return value


Name = Annotated[str, AfterValidator(_check_name)]
Env = Annotated[dict[str, str], AfterValidator(_check_env)]
Resources = Annotated[dict[str, str | int | float], BeforeValidator(_check_slots)]
Seconds = Annotated[float, Field(gt=0, le=315_360_000)]  # ten years: more is a slip, and no database takes it
NoNul = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=32_768)]


class Model(BaseModel):
    """Base of everything a caller may send: unknown fields are errors, values do not change later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]


# As in the OCI's grammar of references, somewhat wider: the engine has the last word.
Image = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$", max_length=512)
]


class Probe(Model):
    """How a ``custom`` engine shows that it is ready: ``path`` answers 2xx over http."""

    path: Annotated[str, Field(pattern=r"^/", max_length=2048)] = "/"
    period_s: Annotated[float, Field(gt=0, le=60)] = 0.5


class Port(Model):
    """A service port: something that the session's program offers to its users through the proxy."""

    name: Annotated[str, Field(pattern=service_ports.NAME_PATTERN, max_length=service_ports.NAME_LENGTH)]
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None,
        description="For containers: where the program listens. Left out, it is given one, as "
        "MOORAGE_PORT_<NAME> and `{port:NAME}` in its command; a process is always given one.",
    )
    protocol: Literal["http", "tcp"] = Field("http", description="http includes WebSocket.")
    base_path: bool = Field(
        False,
        description="The program knows that it lives below /apps/SESSION/NAME (MOORAGE_PATH_<NAME>, "
        "`{path:NAME}`): requests by that path keep it. Else it is taken off.",
    )

    guarded: bool = Field(
        False,
        description="Requests come with `Authorization: Bearer` and the session's own key, which is "
        "MOORAGE_SECRET in its environment: others on the node can be refused.",
    )

    def declared(self) -> ServicePort:
        return ServicePort(self.name, self.port or 0, self.protocol, self.base_path, self.guarded)


class Workload(Model):
    """What one kernel runs and with what: shared by sessions and endpoints."""

    engine: Literal["llamacpp", "vllm", "custom"] = Field(
        "custom", description="vllm or llamacpp serve `model`; custom runs `command`."
    )
    model: NoNul | None = Field(None, description="For vllm: a path or a hub id. For llamacpp: a GGUF file.")
    args: list[NoNul] = Field([], description="Further arguments for the engine, passed as they are.")
    command: list[NoNul] = Field(
        [],
        description="For custom: program and arguments; `{port}` and `{model}` are replaced. An interactive "
        "session may leave it out: it idles until it is stopped.",
    )
    probe: Probe | None = Field(None, description="For custom engines that answer requests.")
    env: Env = {}
    runtime: Literal["process", "docker", "fake"] = Field(
        "process", description="How the kernel runs on its node; docker needs `image`, but for engine vllm."
    )
    image: Image | None = Field(
        None, description="For runtime docker: name, name:tag or name@digest. For vllm, none: the node's own."
    )
    resources: Resources = Field(
        {"cpu": 1, "mem": "1GiB"}, description="Slots, e.g. {'cpu': 2, 'mem': '8GiB', 'cuda.device': 1}."
    )
    resource_group: Name = "default"
    priority: Annotated[int, Field(ge=0, le=100)] = 10
    start_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = Field(
        900, description="From SCHEDULED to RUNNING; then another agent is tried, then ERROR."
    )
    stop_grace_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        10, description="Between the polite stop and the kill."
    )
    max_attempts: Annotated[int, Field(ge=1, le=10)] = Field(3, description="Starts, each on another agent.")
    arch: Word | None = Field(None, description="Only agents of this architecture, like x86_64.")
    labels: Annotated[dict[Word, NoNul], Field(max_length=64)] = Field(
        {}, description="Only agents that have all of these labels."
    )
    agents: Annotated[list[Name], Field(max_length=1000)] = Field(
        [], description="Only these agents, by id; none named: any."
    )
    preemptible: bool = Field(
        True, description="May be stopped for one of higher priority, where its resource group does that."
    )

    def _may_idle(self) -> bool:
        """Whether it may have no program of its own: somebody works in it."""
        return False

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> Self:
        if self.runtime == "docker" and not self.image and self.engine not in WITH_DEFAULT_IMAGE:
            raise ValueError("runtime 'docker' needs `image`: the name of a container image")
        if self.image and self.runtime != "docker":
            raise ValueError(f"`image` is for runtime 'docker', not {self.runtime!r}")
        if self.engine == "custom":
            if not self.command and not self._may_idle():
                raise ValueError("engine 'custom' needs `command`: the program and its arguments")
            if self.command and not self.command[0]:
                raise ValueError("the first word of `command` is empty: it must be a program")
        else:
            if not self.model:
                raise ValueError(f"engine {self.engine!r} needs `model`")
            if self.command:
                raise ValueError(f"engine {self.engine!r} takes no `command`; use `args`")
        return self


class Dependency(Model):
    """Another session of the same project, which must have ended before this one starts."""

    session: Name = Field(description="Its id, or its name: the live one's, else the newest's.")
    on: Literal["success", "any", "failure"] = Field(
        "success", description="How it must end; success is for batch sessions only."
    )


def _dependency(value: Any) -> Any:
    """A name alone is short for its success."""
    return {"session": value} if isinstance(value, str) else value


class SubKernels(Model):
    """What the kernels beside main1 have of their own; what is left out is as main1's."""

    command: list[NoNul] = []
    image: Image | None = None
    env: Env = Field({}, description="Beside that of main1, and before it.")
    resources: Resources | None = None


class Cluster(Model):
    """A session of several kernels that start and end together: main1, sub1, sub2 and so on."""

    size: Annotated[int, Field(ge=1, le=128)] = Field(description="Kernels, main1 included; 1: no cluster.")
    mode: Literal["single-node", "multi-node"] = Field(
        "single-node", description="All on one agent, or each on an agent of its own."
    )
    on_kernel_loss: Literal["end", "degrade"] = Field(
        "end",
        description="When one of the subs is lost while it runs: the session ends, or goes on without it. "
        "Without main1 it always ends.",
    )
    sub: SubKernels | None = Field(None, description="How the subs differ from main1.")


def _no_cluster_of_one(value: Cluster | None) -> Cluster | None:
    """One kernel is a session as any other."""
    return None if value is not None and value.size == 1 else value


class SessionSpec(Workload):
    """A session as asked for: the body of ``POST /v1/sessions``."""

    name: Name | None = Field(None, description="Unique among live sessions; made up when left out.")
    type: SessionType = SessionType.BATCH
    pending_timeout_s: Seconds | None = Field(
        None, description="Longest wait for the scheduler; none means for ever."
    )
    timeout_s: Seconds | None = Field(None, description="Longest run of a batch session, each time anew.")
    max_lifetime_s: Seconds | None = Field(None, description="Longest run of any session, each time anew.")
    retries: Annotated[int, Field(ge=0, le=20)] = Field(
        0, description="Batch: how often its program is run again after it failed, was killed or is gone."
    )
    retry_backoff_s: Annotated[float, Field(gt=0, le=300)] = Field(
        5, description="Pause before the first retry; it doubles each time, up to 300."
    )
    depends_on: Annotated[
        list[Annotated[Dependency, BeforeValidator(_dependency)]], Field(max_length=100)
    ] = Field([], description="All of these first. A name alone means its success.")
    dependency_failed: Literal["end", "wait"] = Field(
        "end", description="When one of them ended otherwise: it is cancelled, or waits until it is stopped."
    )
    starts_at: AwareDatetime | None = Field(
        None, description="Batch: not before this time, in RFC 3339; pending_timeout_s counts from it."
    )
    cluster: Annotated[Cluster | None, AfterValidator(_no_cluster_of_one)] = Field(
        None, description="Several kernels, each with `resources` of its own; none: one kernel."
    )

    ports: Annotated[list[Port], Field(max_length=service_ports.MOST_PORTS)] = Field(
        [], description="Service ports, like a notebook's: reached through the proxy with an access token."
    )

    workspace: Literal["keep", "drop"] | None = Field(
        None,
        description="A working directory on its node (in containers /workspace): drop goes with its kernel, "
        "keep stays on that node, also for retries there, until it is removed.",
    )

    def _may_idle(self) -> bool:
        return self.type is SessionType.INTERACTIVE

    @model_validator(mode="after")
    def _ports_go_together(self) -> Self:
        if wrong := service_ports.what_is_wrong(port.declared() for port in self.ports):
            raise ValueError(f"ports: {wrong}")
        named = next((port for port in self.ports if port.port and self.runtime not in IMAGED), None)
        if named is not None:
            raise ValueError(
                f"ports: {named.name!r} names port {named.port}, but runtime {self.runtime!r} shares the "
                f"node's with others: leave it out, and have the program listen on `{{port:{named.name}}}`"
            )
        return self

    @model_validator(mode="after")
    def _type_has_its_features(self) -> Self:
        if self.type is not SessionType.BATCH and self.timeout_s is not None:
            raise ValueError("`timeout_s` is for batch sessions; use `max_lifetime_s`")
        if self.type is not SessionType.BATCH and self.retries:
            raise ValueError("`retries` is for batch sessions: only they have a result")
        if self.type is not SessionType.BATCH and self.starts_at is not None:
            raise ValueError("`starts_at` is for batch sessions; create the others when they are wanted")
        if self.workspace and self.cluster:
            raise ValueError("`workspace` is for sessions of one kernel, and this one is a `cluster`")
        if self.type is not SessionType.INFERENCE and self.engine != "custom":
            raise ValueError(f"engine {self.engine!r} serves a model: it needs type 'inference'")
        if self.type is SessionType.INFERENCE and self.engine == "custom" and self.probe is None:
            raise ValueError("a custom inference session needs `probe`: how it shows that it is ready")
        return self

    @model_validator(mode="after")
    def _cluster_can_be_run(self) -> Self:
        if self.cluster is None:
            return self
        if self.engine != "custom":
            raise ValueError(f"engine {self.engine!r} runs as one kernel: `cluster` needs engine 'custom'")
        sub = self.cluster.sub
        if sub is not None and sub.image is not None and self.runtime != "docker":
            raise ValueError(f"`cluster.sub.image` is for runtime 'docker', not {self.runtime!r}")
        if sub is not None and sub.command and not sub.command[0]:
            raise ValueError("the first word of `cluster.sub.command` is empty: it must be a program")
        if 0 < len(self.agents) < self.cluster.size and self.cluster.mode == "multi-node":
            raise ValueError(
                f"a multi-node cluster of {self.cluster.size} needs as many agents, and `agents` names "
                f"{len(self.agents)}"
            )
        return self

    @property
    def size(self) -> int:
        """How many kernels it has."""
        return self.cluster.size if self.cluster is not None else 1

    @property
    def agents_needed(self) -> int:
        """On how many different agents its kernels must be."""
        return self.size if self.cluster is not None and self.cluster.mode == "multi-node" else 1


class EndpointSpec(Workload):
    """A served model as asked for: the body of ``POST /v1/endpoints``."""

    name: Name = Field(description="The name that clients send as `model`. Unique.")
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1

    @model_validator(mode="after")
    def _custom_needs_probe(self) -> Self:
        if self.engine == "custom" and self.probe is None:
            raise ValueError("a custom endpoint needs `probe`: how it shows that it is ready")
        return self

    def session(self, name: str) -> SessionSpec:
        """One replica of this endpoint."""
        shared = self.model_dump(exclude={"name", "replicas"})
        return SessionSpec(**shared, name=name, type=SessionType.INFERENCE)
