"""Why a session or kernel is where it is: a closed set of codes, each with words and a next step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    NONE = ""
    # waiting
    INSUFFICIENT_RESOURCES = "insufficient-resources"
    INFEASIBLE = "infeasible"
    NO_ELIGIBLE_AGENT = "no-eligible-agent"
    BACKOFF = "backoff"
    RESERVED = "reserved"
    QUOTA = "quota"
    DEPENDENCY = "dependency"
    DEPENDENCY_FAILED = "dependency-failed"
    BEGIN_TIME = "begin-time"
    NOT_ALLOWED = "not-allowed"
    SELECTOR_FAILED = "selector-failed"
    # starting
    IMAGE_MISSING = "image-missing"
    IMAGE_NOT_ALLOWED = "image-not-allowed"
    MOUNT_NOT_ALLOWED = "mount-not-allowed"
    NO_NVIDIA_RUNTIME = "no-nvidia-runtime"
    LIMIT_REFUSED = "limit-refused"
    NO_NETWORK = "no-network"
    RUNTIME_UNAVAILABLE = "runtime-unavailable"
    DISK_FULL = "disk-full"
    MODEL_MISSING = "model-missing"
    ENGINE_MISSING = "engine-missing"
    PORT_TAKEN = "port-taken"
    DEVICE_BUSY = "device-busy"
    START_TIMEOUT = "start-timeout"
    PENDING_TIMEOUT = "pending-timeout"
    CREATE_FAILED = "create-failed"
    # ending
    EXIT_ZERO = "exit-zero"
    EXIT_NONZERO = "exit-nonzero"
    KILLED = "killed"
    OOM = "oom"
    TIMEOUT = "timeout"
    MAX_LIFETIME = "max-lifetime"
    STOP_TIMEOUT = "stop-timeout"
    KERNEL_GONE = "kernel-gone"
    AGENT_LOST = "agent-lost"
    AGENT_SHUTDOWN = "agent-shutdown"
    AGENT_DRAINED = "agent-drained"
    PREEMPTED = "preempted"
    SCALED_DOWN = "scaled-down"
    ENDPOINT_DELETED = "endpoint-deleted"
    USER_REQUESTED = "user-requested"


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """``failure``: a session that ends for it ends in ERROR (batch: result FAILED).
    ``retryable``: another agent may do better."""

    text: str
    next_step: str
    failure: bool = False
    retryable: bool = False


REASONS: dict[Reason, ReasonInfo] = {
    Reason.NONE: ReasonInfo("", ""),
    Reason.INSUFFICIENT_RESOURCES: ReasonInfo(
        "no agent has the free resources now", "wait, stop something, or ask for less"
    ),
    Reason.INFEASIBLE: ReasonInfo(
        "no agent of the resource group could hold it, even empty",
        "ask for less, or another resource group; `moorage agents` shows what there is",
        failure=True,
    ),
    Reason.NO_ELIGIBLE_AGENT: ReasonInfo(
        "no live agent of the resource group can run it",
        "`moorage agents` shows them; `moorage agent` adds one",
    ),
    Reason.BACKOFF: ReasonInfo(
        "its program failed, and is run again after a pause", "wait, or stop it; its log says why it failed"
    ),
    Reason.RESERVED: ReasonInfo(
        "the room that it needs is kept for a session that waits longer",
        "wait; with a timeout_s that ends before that session starts it could go first",
    ),
    Reason.QUOTA: ReasonInfo(
        "its user, project or resource group has all that its quota allows",
        "wait, stop something, or ask for a larger quota",
    ),
    Reason.DEPENDENCY: ReasonInfo("it waits for other sessions", "wait; `moorage describe` names them"),
    Reason.DEPENDENCY_FAILED: ReasonInfo(
        "a session that it depends on ended otherwise than it needs",
        "read the log of that session, and start both again",
        failure=True,
    ),
    Reason.BEGIN_TIME: ReasonInfo("it was asked to start later", "wait until its starts_at"),
    Reason.NOT_ALLOWED: ReasonInfo(
        "the resource group does not allow such a session", "ask for another resource group, or as it allows"
    ),
    Reason.SELECTOR_FAILED: ReasonInfo(
        "the resource group's own agent selector failed or chose none",
        "see the manager's log, or set another agent_selection for the group",
    ),
    Reason.IMAGE_MISSING: ReasonInfo(
        "the container image could not be had", "check its name and the registry", True, True
    ),
    Reason.IMAGE_NOT_ALLOWED: ReasonInfo(
        "the node does not allow this container image",
        "use another image, or ask for agent.docker_images there",
        True,
        True,
    ),
    Reason.MOUNT_NOT_ALLOWED: ReasonInfo(
        "containers of the node may not see the files that it needs",
        "put them below one of agent.docker_mounts there",
        True,
        True,
    ),
    Reason.NO_NVIDIA_RUNTIME: ReasonInfo(
        "Docker on the agent's node cannot give GPUs to containers",
        "install the NVIDIA container toolkit there; see `moorage doctor`",
        True,
        True,
    ),
    Reason.LIMIT_REFUSED: ReasonInfo(
        "Docker on the agent's node refused one of its limits",
        "ask for no more than the node really has",
        True,
        True,
    ),
    Reason.NO_NETWORK: ReasonInfo(
        "the node has no network for its containers", "the detail says why", True, True
    ),
    Reason.RUNTIME_UNAVAILABLE: ReasonInfo(
        "Docker on the agent's node did not answer", "see `systemctl status docker` there", True, True
    ),
    Reason.DISK_FULL: ReasonInfo(
        "there is no space left where Docker on the agent's node keeps its data",
        "free space there; see agent.docker_gc and agent.docker_min_free",
        True,
        True,
    ),
    Reason.MODEL_MISSING: ReasonInfo(
        "the model's files are not on the agent's node", "check the path on that node", True, True
    ),
    Reason.ENGINE_MISSING: ReasonInfo(
        "the engine is not installed on the agent's node",
        "install it there; see `moorage doctor`",
        True,
        True,
    ),
    Reason.PORT_TAKEN: ReasonInfo(
        "no free port for the kernel", "widen agent.port_range, or free ports on that node", True, True
    ),
    Reason.DEVICE_BUSY: ReasonInfo(
        "the memory of its GPU was not free",
        "end the processes that the detail names, on that node; the GPU is fenced until then",
        True,
        True,
    ),
    Reason.START_TIMEOUT: ReasonInfo(
        "it did not become ready in time",
        "read its log; raise start_timeout_s if it only needs longer",
        True,
        True,
    ),
    Reason.PENDING_TIMEOUT: ReasonInfo(
        "it waited longer than pending_timeout_s", "ask again later, or for less"
    ),
    Reason.CREATE_FAILED: ReasonInfo("the agent could not start it", "the detail says why", True, True),
    Reason.EXIT_ZERO: ReasonInfo("its main program ended by itself with exit code 0", ""),
    Reason.EXIT_NONZERO: ReasonInfo(
        "its main program ended with an error", "read its last log lines", True, True
    ),
    Reason.KILLED: ReasonInfo("it was killed by a signal from outside", "see the node's own log", True, True),
    Reason.OOM: ReasonInfo("it used more memory than it had", "ask for more memory", True),
    Reason.TIMEOUT: ReasonInfo("it ran longer than its timeout_s", "raise timeout_s", True),
    Reason.MAX_LIFETIME: ReasonInfo("its max_lifetime_s has passed", "start it again"),
    Reason.STOP_TIMEOUT: ReasonInfo("it did not end in time after a stop", "look at its agent's node"),
    Reason.KERNEL_GONE: ReasonInfo(
        "its kernel is gone from the node without a word (the node restarted?)",
        "start it again; a batch session with `retries` does so by itself",
        True,
        True,
    ),
    Reason.AGENT_LOST: ReasonInfo("its agent went silent for too long", "look at that node", True, True),
    Reason.AGENT_SHUTDOWN: ReasonInfo(
        "its agent was shut down with its kernels", "start it again", retryable=True
    ),
    Reason.AGENT_DRAINED: ReasonInfo(
        "its agent was emptied by an administrator",
        "start it again: it goes to another agent; a batch session with `retries` does so by itself",
    ),
    Reason.PREEMPTED: ReasonInfo(
        "it made room for a session of higher priority",
        "wait, if it was put back into the queue; else start it again, or with a higher priority",
    ),
    Reason.SCALED_DOWN: ReasonInfo("its endpoint needs fewer replicas", ""),
    Reason.ENDPOINT_DELETED: ReasonInfo("its endpoint was deleted", ""),
    Reason.USER_REQUESTED: ReasonInfo("somebody asked for it to stop", ""),
}
