"""Reason codes of sessions and kernels: a closed set, each with a text and a next step.

A code of another release stays what it is: an unnamed ``Reason``, which ``REASONS`` describes as
unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+){0,7}")


class Reason(StrEnum):
    NONE = ""
    # pending
    INSUFFICIENT_RESOURCES = "insufficient-resources"
    INFEASIBLE = "infeasible"
    NO_ELIGIBLE_AGENT = "no-eligible-agent"
    BACKOFF = "backoff"
    RESERVED = "reserved"
    QUOTA = "quota"
    NODE_HOURS = "node-hours"
    EARLIER_ATTEMPT = "earlier-attempt"
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
    NOT_ISOLATED = "not-isolated"
    MODEL_MISSING = "model-missing"
    INPUT_UNAVAILABLE = "input-unavailable"
    ENGINE_MISSING = "engine-missing"
    PORT_TAKEN = "port-taken"
    DEVICE_BUSY = "device-busy"
    START_TIMEOUT = "start-timeout"
    QUEUE_TIMEOUT = "queue-timeout"
    PENDING_TIMEOUT = "pending-timeout"
    CREATE_FAILED = "create-failed"
    # ending
    EXIT_ZERO = "exit-zero"
    EXIT_NONZERO = "exit-nonzero"
    KILLED = "killed"
    OUTPUT_FAILED = "output-failed"
    OOM = "oom"
    TIMEOUT = "timeout"
    MAX_LIFETIME = "max-lifetime"
    IDLE_TIMEOUT = "idle-timeout"
    BUDGET_EXHAUSTED = "budget-exhausted"
    WALLTIME = "walltime"
    STOP_TIMEOUT = "stop-timeout"
    KERNEL_GONE = "kernel-gone"
    LEASE_EXPIRED = "lease-expired"
    AGENT_LOST = "agent-lost"
    AGENT_SHUTDOWN = "agent-shutdown"
    AGENT_DRAINED = "agent-drained"
    PREEMPTED = "preempted"
    SCALED_DOWN = "scaled-down"
    REVISION_REPLACED = "revision-replaced"
    GROUP_FULL = "group-full"
    PREFERRED_GROUP = "preferred-group"
    UNHEALTHY = "unhealthy"
    ENDPOINT_DELETED = "endpoint-deleted"
    USER_REQUESTED = "user-requested"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """An unnamed member for a well-formed code of another release; None for anything else."""
        if not isinstance(value, str) or not _CODE.fullmatch(value):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = "UNKNOWN"
        unknown._value_ = value
        return unknown


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """``failure``: a session that ends for this reason ends in ERROR (batch: result FAILED).
    ``retryable``: a start that failed for this reason may succeed on another agent."""

    text: str
    next_step: str
    failure: bool = False
    retryable: bool = False


class _Reasons(dict[Reason, ReasonInfo]):
    def __missing__(self, reason: Reason) -> ReasonInfo:
        """Of an unknown code: a failure, because a success has a code that every release knows; and
        not retryable, because nothing is known about it."""
        return ReasonInfo(
            "another release of Moorage gave a reason that this one does not know",
            "read the detail and the log; upgrade all components to one release",
            failure=True,
        )


REASONS: dict[Reason, ReasonInfo] = _Reasons(
    {
        Reason.NONE: ReasonInfo("", ""),
        Reason.INSUFFICIENT_RESOURCES: ReasonInfo(
            "no agent has enough free resources now", "wait, stop another session, or request less"
        ),
        Reason.INFEASIBLE: ReasonInfo(
            "no agent of the resource group could ever hold it, even when empty",
            "request less, or choose another resource group; `moorage agents` lists what the "
            "agents have",
            failure=True,
        ),
        Reason.NO_ELIGIBLE_AGENT: ReasonInfo(
            "no live agent of the resource group can run it",
            "`moorage agents` lists the agents: `moorage agents uncordon AGENT` lets one take "
            "work again, "
            "`moorage agent` starts another",
        ),
        Reason.BACKOFF: ReasonInfo(
            "its program failed, and the next run waits for the backoff to end",
            "wait, or stop it; its log shows why the program failed",
        ),
        Reason.RESERVED: ReasonInfo(
            "the resources that it needs are reserved for a session that has waited longer",
            "wait; a session whose timeout_s ends before that reservation begins may start first",
        ),
        Reason.QUOTA: ReasonInfo(
            "its user, project or resource group has reached its quota",
            "wait, stop another session, or ask an administrator for a larger quota",
        ),
        Reason.NODE_HOURS: ReasonInfo(
            "its job could use more node-hours than a quota has left this month",
            "wait for the next month (UTC) or for jobs that end early, set a shorter walltime_s, "
            "or ask an "
            "administrator for a larger quota",
        ),
        Reason.EARLIER_ATTEMPT: ReasonInfo(
            "its earlier attempt may still run",
            "wait until its agent has seen it end; if that node is gone for good, an "
            "administrator runs "
            "`moorage agents forget AGENT --destroyed`",
        ),
        Reason.DEPENDENCY: ReasonInfo(
            "it waits for other sessions to end", "wait; `moorage describe` lists its dependencies"
        ),
        Reason.DEPENDENCY_FAILED: ReasonInfo(
            "a session that it depends on did not end as required",
            "read the log of that session, then start both again",
            failure=True,
        ),
        Reason.BEGIN_TIME: ReasonInfo(
            "its start time has not come yet", "wait until its starts_at"
        ),
        Reason.NOT_ALLOWED: ReasonInfo(
            "the resource group does not allow this kind of session",
            "choose another resource group, or change the session to what the group allows",
        ),
        Reason.SELECTOR_FAILED: ReasonInfo(
            "the custom agent selector of the resource group failed, or selected no agent",
            "read the manager's log, or set another agent_selection for the group",
        ),
        Reason.IMAGE_MISSING: ReasonInfo(
            "the container image could not be pulled",
            "check the image name and the registry",
            failure=True,
            retryable=True,
        ),
        Reason.IMAGE_NOT_ALLOWED: ReasonInfo(
            "the node does not allow this container image",
            "use another image, or ask for it to be added to agent.docker_images on that node",
            failure=True,
            retryable=True,
        ),
        Reason.MOUNT_NOT_ALLOWED: ReasonInfo(
            "containers on the node may not mount the files that it needs",
            "move the files below one of the directories in agent.docker_mounts on that node",
            failure=True,
            retryable=True,
        ),
        Reason.NO_NVIDIA_RUNTIME: ReasonInfo(
            "Docker on the agent's node cannot give GPUs to containers",
            "install the NVIDIA Container Toolkit on that node; `moorage doctor` checks it",
            failure=True,
            retryable=True,
        ),
        Reason.LIMIT_REFUSED: ReasonInfo(
            "Docker on the agent's node rejected a resource limit",
            "request no more than the node has; the detail names the limit",
            failure=True,
            retryable=True,
        ),
        Reason.NO_NETWORK: ReasonInfo(
            "the node could not provide a network for the containers",
            "the detail gives the cause",
            failure=True,
            retryable=True,
        ),
        Reason.RUNTIME_UNAVAILABLE: ReasonInfo(
            "Docker on the agent's node did not respond",
            "check `systemctl status docker` on that node",
            failure=True,
            retryable=True,
        ),
        Reason.DISK_FULL: ReasonInfo(
            "a disk of the agent's node is full",
            "free space on that node: the detail says where; for images see agent.docker_gc and "
            "agent.docker_min_free",
            failure=True,
            retryable=True,
        ),
        Reason.NOT_ISOLATED: ReasonInfo(
            "it belongs to no administrator, and processes of others need an agent that isolates "
            "them",
            "use an image (runtime docker), or ask an administrator: `moorage agent doctor` on "
            "the node says "
            "what it takes",
            failure=True,
            retryable=True,
        ),
        Reason.MODEL_MISSING: ReasonInfo(
            "the model's files do not exist on the agent's node",
            "check the path on that node",
            failure=True,
            retryable=True,
        ),
        Reason.INPUT_UNAVAILABLE: ReasonInfo(
            "an output of an earlier step is no longer on the node that had it, or did not arrive "
            "unchanged",
            "retry the pipeline: it also makes the output again",
            failure=True,
        ),
        Reason.ENGINE_MISSING: ReasonInfo(
            "the engine is not installed on the agent's node",
            "install it there: vLLM with `moorage agent install-engine vllm`; `moorage doctor` "
            "checks it",
            failure=True,
            retryable=True,
        ),
        Reason.PORT_TAKEN: ReasonInfo(
            "no port is free for the kernel",
            "widen agent.port_range, or free ports on that node",
            failure=True,
            retryable=True,
        ),
        Reason.DEVICE_BUSY: ReasonInfo(
            "the memory of its GPU is in use by other processes",
            "end the processes that the detail names on that node; the GPU stays fenced until then",
            failure=True,
            retryable=True,
        ),
        Reason.START_TIMEOUT: ReasonInfo(
            "it did not become ready within start_timeout_s",
            "read its log; raise start_timeout_s if it only needs more time",
            failure=True,
            retryable=True,
        ),
        Reason.QUEUE_TIMEOUT: ReasonInfo(
            "its job waited in the site's queue for longer than queue_timeout_s",
            "raise queue_timeout_s of the session or its resource group, or use another resource "
            "group",
            failure=True,
        ),
        Reason.PENDING_TIMEOUT: ReasonInfo(
            "it waited longer than pending_timeout_s", "submit it again later, or request less"
        ),
        Reason.CREATE_FAILED: ReasonInfo(
            "the agent could not create the kernel",
            "the detail gives the cause",
            failure=True,
            retryable=True,
        ),
        Reason.EXIT_ZERO: ReasonInfo("its main program exited with code 0", ""),
        Reason.OUTPUT_FAILED: ReasonInfo(
            "its main program exited with code 0, but an output is missing or cannot be kept",
            "the detail names it; correct `outputs` of the step or its program, and retry the "
            "pipeline",
            failure=True,
        ),
        Reason.EXIT_NONZERO: ReasonInfo(
            "its main program exited with an error",
            "read the last lines of its log",
            failure=True,
            retryable=True,
        ),
        Reason.KILLED: ReasonInfo(
            "a signal from outside killed its main program",
            "read the system log of the node",
            failure=True,
            retryable=True,
        ),
        Reason.OOM: ReasonInfo(
            "it used more memory than it was allocated", "request more memory", failure=True
        ),
        Reason.TIMEOUT: ReasonInfo(
            "it ran longer than its timeout_s",
            "raise it: `--timeout`, timeout_s in a spec",
            failure=True,
        ),
        Reason.MAX_LIFETIME: ReasonInfo("it reached its max_lifetime_s", "start it again"),
        Reason.IDLE_TIMEOUT: ReasonInfo(
            "nobody used it: an idle criterion of its own or of its resource group was met",
            "start it again; `moorage extend` keeps a session that was warned",
        ),
        Reason.BUDGET_EXHAUSTED: ReasonInfo(
            "a budget of its project, user or key is used up, and stops what runs",
            "wait until its period ends, or ask an administrator for a larger one",
        ),
        Reason.WALLTIME: ReasonInfo(
            "the walltime of its job is over",
            "start it again; a replica of an endpoint has a successor",
        ),
        Reason.STOP_TIMEOUT: ReasonInfo(
            "it did not end in time after a stop", "check its agent's node"
        ),
        Reason.KERNEL_GONE: ReasonInfo(
            "its kernel disappeared from the node, for example because the node restarted",
            "start it again; a batch session with `retries` restarts by itself",
            failure=True,
            retryable=True,
        ),
        Reason.AGENT_LOST: ReasonInfo(
            "its agent did not report for too long",
            "check that node; `on_lost_agent` says what becomes of a batch session then",
            failure=True,
            retryable=True,
        ),
        Reason.LEASE_EXPIRED: ReasonInfo(
            "its node had no contact with a manager until the lease ran out, which ended the "
            "program",
            "check that node and its network; a batch session with `retries` restarts by itself",
            failure=True,
            retryable=True,
        ),
        Reason.AGENT_SHUTDOWN: ReasonInfo(
            "its agent was shut down together with its kernels", "start it again", retryable=True
        ),
        Reason.AGENT_DRAINED: ReasonInfo(
            "an administrator drained its agent",
            "start it again, on another agent; a batch session with `retries` restarts by itself",
        ),
        Reason.PREEMPTED: ReasonInfo(
            "it released its resources to a session of higher priority",
            "wait if it is back in the queue; otherwise start it again, or with a higher priority",
        ),
        Reason.SCALED_DOWN: ReasonInfo("its endpoint needs fewer replicas", ""),
        Reason.REVISION_REPLACED: ReasonInfo(
            "a replica of another revision of its endpoint replaced it", ""
        ),
        Reason.GROUP_FULL: ReasonInfo(
            "its resource group had no room; one in another group replaces it", ""
        ),
        Reason.PREFERRED_GROUP: ReasonInfo(
            "a resource group that its endpoint prefers has room again; one there replaces it", ""
        ),
        Reason.UNHEALTHY: ReasonInfo(
            "its engine no longer answered health checks",
            "read its log; the endpoint has started another replica",
            failure=True,
        ),
        Reason.ENDPOINT_DELETED: ReasonInfo("its endpoint was deleted", ""),
        Reason.USER_REQUESTED: ReasonInfo("a user stopped it", ""),
    }
)
