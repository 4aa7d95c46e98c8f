"""Reason codes of sessions and kernels: a closed set, each with a text and a next step.

A code of another release is kept as an unnamed ``Reason``, which ``REASONS`` describes as unknown.
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
    HELD = "held"
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
    TASKS_FAILED = "tasks-failed"
    KILLED = "killed"
    OUTPUT_FAILED = "output-failed"
    OOM = "oom"
    TIMEOUT = "timeout"
    PIPELINE_TIMEOUT = "pipeline-timeout"
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
    REQUEUED = "requeued"
    SCALED_DOWN = "scaled-down"
    REVISION_REPLACED = "revision-replaced"
    GROUP_FULL = "group-full"
    PREFERRED_GROUP = "preferred-group"
    UNHEALTHY = "unhealthy"
    ENDPOINT_DELETED = "endpoint-deleted"
    USER_REQUESTED = "user-requested"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """Return an unnamed member for a well-formed code of another release; None for anything
        else."""
        if not isinstance(value, str) or not _CODE.fullmatch(value):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = "UNKNOWN"
        unknown._value_ = value
        return unknown


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """``failure``: a session that ends for this reason ends in ERROR (a batch session with result
    FAILED). ``retryable``: a start that failed for this reason may succeed on another agent."""

    text: str
    next_step: str
    failure: bool = False
    retryable: bool = False


class _Reasons(dict[Reason, ReasonInfo]):
    def __missing__(self, reason: Reason) -> ReasonInfo:
        """Describe an unknown code. It is a failure, because every release knows the codes for
        success, and not retryable, because nothing is known about it."""
        return ReasonInfo(
            "another release of Moorage reported a reason that this one does not know",
            "read the detail and the log; upgrade all components to the same release",
            failure=True,
        )


REASONS: dict[Reason, ReasonInfo] = _Reasons(
    {
        Reason.NONE: ReasonInfo("", ""),
        Reason.INSUFFICIENT_RESOURCES: ReasonInfo(
            "no agent has enough free resources now", "wait, stop another session, or request less"
        ),
        Reason.INFEASIBLE: ReasonInfo(
            "no agent of the resource group could ever hold the session, even when empty",
            "request less, or choose another resource group; `moorage agents` lists the "
            "resources of the agents",
            failure=True,
        ),
        Reason.NO_ELIGIBLE_AGENT: ReasonInfo(
            "no live agent of the resource group can run the session",
            "`moorage agents` lists the agents: `moorage agents uncordon AGENT` lets one accept "
            "work again, `moorage agent` starts another",
        ),
        Reason.BACKOFF: ReasonInfo(
            "the program failed, and the next run waits for the backoff to end",
            "wait, or stop the session; the log shows why the program failed",
        ),
        Reason.RESERVED: ReasonInfo(
            "the required resources are reserved for a session that has waited longer",
            "wait; a session whose timeout_s ends before that reservation begins may start first",
        ),
        Reason.QUOTA: ReasonInfo(
            "the user, the project or the resource group has reached its quota",
            "wait, stop another session, or ask an administrator for a larger quota",
        ),
        Reason.NODE_HOURS: ReasonInfo(
            "the job could use more node-hours than a quota has left this month",
            "wait for the next month (UTC) or for jobs that end early, set a shorter walltime_s, "
            "or ask an "
            "administrator for a larger quota",
        ),
        Reason.EARLIER_ATTEMPT: ReasonInfo(
            "an earlier attempt may still be running",
            "wait until the agent reports its end; if that node is gone for good, an "
            "administrator runs `moorage agents forget AGENT --destroyed`",
        ),
        Reason.DEPENDENCY: ReasonInfo(
            "the session waits for other sessions to end",
            "wait; `moorage describe` lists its dependencies",
        ),
        Reason.DEPENDENCY_FAILED: ReasonInfo(
            "a session that it depends on did not end as required",
            "read the log of that session, then start both again",
            failure=True,
        ),
        Reason.BEGIN_TIME: ReasonInfo(
            "the start time has not been reached", "wait until starts_at"
        ),
        Reason.HELD: ReasonInfo(
            "the session is held",
            "`moorage update SESSION --release`; a hold of an administrator needs an administrator",
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
            "use another image, or ask for the image to be added to agent.docker_images on that "
            "node",
            failure=True,
            retryable=True,
        ),
        Reason.MOUNT_NOT_ALLOWED: ReasonInfo(
            "containers on the node may not mount the files that the session needs",
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
            "the owner is not an administrator, so the session needs an agent that isolates its "
            "processes",
            "use an image (runtime docker), or ask an administrator: `moorage agent doctor` on "
            "the node shows what isolation requires",
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
            "an output of an earlier step is no longer on its node, or did not arrive unchanged",
            "retry the pipeline, which also produces the output again",
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
            "other processes use the memory of the GPU",
            "end the processes on that node that the detail names; the GPU stays fenced until then",
            failure=True,
            retryable=True,
        ),
        Reason.START_TIMEOUT: ReasonInfo(
            "the program did not become ready within start_timeout_s",
            "read the log; raise start_timeout_s if the program only needs more time",
            failure=True,
            retryable=True,
        ),
        Reason.QUEUE_TIMEOUT: ReasonInfo(
            "the job waited in the site's queue for longer than queue_timeout_s",
            "raise queue_timeout_s of the session or its resource group, or use another resource "
            "group",
            failure=True,
        ),
        Reason.PENDING_TIMEOUT: ReasonInfo(
            "the session waited longer than pending_timeout_s",
            "submit it again later, or request less",
        ),
        Reason.CREATE_FAILED: ReasonInfo(
            "the agent could not create the kernel",
            "the detail gives the cause",
            failure=True,
            retryable=True,
        ),
        Reason.EXIT_ZERO: ReasonInfo("the main program exited with code 0", ""),
        Reason.OUTPUT_FAILED: ReasonInfo(
            "the main program exited with code 0, but an output is missing or cannot be kept",
            "the detail names the output; correct `outputs` of the step or its program, and "
            "retry the pipeline",
            failure=True,
        ),
        Reason.EXIT_NONZERO: ReasonInfo(
            "the main program exited with an error",
            "read the last lines of the log",
            failure=True,
            retryable=True,
        ),
        Reason.TASKS_FAILED: ReasonInfo(
            "not all tasks of the session's list succeeded",
            "`moorage tasks list SESSION --state FAILED,LOST` shows them, `moorage tasks retry` runs "
            "them again",
            failure=True,
        ),
        Reason.KILLED: ReasonInfo(
            "a signal from outside killed the main program",
            "read the system log of the node",
            failure=True,
            retryable=True,
        ),
        Reason.OOM: ReasonInfo(
            "the program used more memory than it was allocated",
            "request more memory",
            failure=True,
        ),
        Reason.TIMEOUT: ReasonInfo(
            "the session ran longer than its timeout_s",
            "raise the limit: `--timeout`, or timeout_s in a specification",
            failure=True,
        ),
        Reason.PIPELINE_TIMEOUT: ReasonInfo(
            "the timeout_s of the session's pipeline passed",
            "raise timeout_s of the pipeline, or retry it, which starts its time again",
            failure=True,
        ),
        Reason.MAX_LIFETIME: ReasonInfo("the session reached its max_lifetime_s", "start it again"),
        Reason.IDLE_TIMEOUT: ReasonInfo(
            "nobody used the session: an idle criterion of its own or of its resource group was "
            "met",
            "start it again; `moorage extend` extends a session after its warning",
        ),
        Reason.BUDGET_EXHAUSTED: ReasonInfo(
            "a budget of the project, the user or the key is exhausted, which stops running work",
            "wait until the budget's period ends, or ask an administrator for a larger budget",
        ),
        Reason.WALLTIME: ReasonInfo(
            "the job reached its walltime",
            "start it again; a replica of an endpoint has a successor",
        ),
        Reason.STOP_TIMEOUT: ReasonInfo(
            "the program did not end in time after it was asked to stop", "check the agent's node"
        ),
        Reason.KERNEL_GONE: ReasonInfo(
            "the kernel disappeared from the node, for example because the node restarted",
            "start it again; a batch session with `retries` restarts by itself",
            failure=True,
            retryable=True,
        ),
        Reason.AGENT_LOST: ReasonInfo(
            "the agent did not report for too long",
            "check that node; `on_lost_agent` determines what then happens to a batch session",
            failure=True,
            retryable=True,
        ),
        Reason.LEASE_EXPIRED: ReasonInfo(
            "the node had no contact with a manager until the lease expired, which ended the "
            "program",
            "check that node and its network; a batch session with `retries` restarts by itself",
            failure=True,
            retryable=True,
        ),
        Reason.AGENT_SHUTDOWN: ReasonInfo(
            "the agent was shut down together with its kernels", "start it again", retryable=True
        ),
        Reason.AGENT_DRAINED: ReasonInfo(
            "an administrator drained the agent",
            "start it again, on another agent; a batch session with `retries` restarts by itself",
        ),
        Reason.PREEMPTED: ReasonInfo(
            "the session released its resources to a session of higher priority",
            "wait if it is back in the queue; otherwise start it again, or with a higher priority",
        ),
        Reason.REQUEUED: ReasonInfo(
            "a user requeued the session", "wait: it starts again from its beginning"
        ),
        Reason.SCALED_DOWN: ReasonInfo("the endpoint needs fewer replicas", ""),
        Reason.REVISION_REPLACED: ReasonInfo(
            "a replica of another revision of the endpoint replaced this one", ""
        ),
        Reason.GROUP_FULL: ReasonInfo(
            "the resource group had no room; a replica in another group replaces this one", ""
        ),
        Reason.PREFERRED_GROUP: ReasonInfo(
            "a resource group that the endpoint prefers has room again; a replica there replaces "
            "this one",
            "",
        ),
        Reason.UNHEALTHY: ReasonInfo(
            "the engine no longer answered health checks",
            "read the log; the endpoint has started another replica",
            failure=True,
        ),
        Reason.ENDPOINT_DELETED: ReasonInfo("the endpoint was deleted", ""),
        Reason.USER_REQUESTED: ReasonInfo("a user stopped the session", ""),
    }
)
