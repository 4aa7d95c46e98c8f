from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlotOffer(_message.Message):
    __slots__ = ("slot", "device_id", "capacity", "model", "memory_bytes", "healthy", "numa", "nvlink_domain", "parent", "unhealthy_reason")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    NVLINK_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_REASON_FIELD_NUMBER: _ClassVar[int]
    slot: str
    device_id: str
    capacity: int
    model: str
    memory_bytes: int
    healthy: bool
    numa: int
    nvlink_domain: str
    parent: str
    unhealthy_reason: str
    def __init__(self, slot: _Optional[str] = ..., device_id: _Optional[str] = ..., capacity: _Optional[int] = ..., model: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., healthy: _Optional[bool] = ..., numa: _Optional[int] = ..., nvlink_domain: _Optional[str] = ..., parent: _Optional[str] = ..., unhealthy_reason: _Optional[str] = ...) -> None: ...

class AgentInfo(_message.Message):
    __slots__ = ("agent_id", "resource_group", "address", "version", "arch", "runtimes", "engines", "offers", "labels", "identity", "max_kernels", "share_quantum", "share_minimum", "report_interval_s", "runtime_states", "lease_runtimes", "doubtful_jobs", "site_nodes", "reach", "undialed", "not_ready", "suspend_runtimes")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class UndialedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_GROUP_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MAX_KERNELS_FIELD_NUMBER: _ClassVar[int]
    SHARE_QUANTUM_FIELD_NUMBER: _ClassVar[int]
    SHARE_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_STATES_FIELD_NUMBER: _ClassVar[int]
    LEASE_RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    DOUBTFUL_JOBS_FIELD_NUMBER: _ClassVar[int]
    SITE_NODES_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    UNDIALED_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    resource_group: str
    address: str
    version: str
    arch: str
    runtimes: _containers.RepeatedScalarFieldContainer[str]
    engines: _containers.RepeatedScalarFieldContainer[str]
    offers: _containers.RepeatedCompositeFieldContainer[SlotOffer]
    labels: _containers.ScalarMap[str, str]
    identity: str
    max_kernels: int
    share_quantum: int
    share_minimum: int
    report_interval_s: float
    runtime_states: _containers.RepeatedCompositeFieldContainer[RuntimeState]
    lease_runtimes: _containers.RepeatedScalarFieldContainer[str]
    doubtful_jobs: _containers.RepeatedCompositeFieldContainer[DoubtfulJob]
    site_nodes: _containers.RepeatedCompositeFieldContainer[SiteNodes]
    reach: str
    undialed: _containers.ScalarMap[str, str]
    not_ready: str
    suspend_runtimes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_id: _Optional[str] = ..., resource_group: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., arch: _Optional[str] = ..., runtimes: _Optional[_Iterable[str]] = ..., engines: _Optional[_Iterable[str]] = ..., offers: _Optional[_Iterable[_Union[SlotOffer, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., identity: _Optional[str] = ..., max_kernels: _Optional[int] = ..., share_quantum: _Optional[int] = ..., share_minimum: _Optional[int] = ..., report_interval_s: _Optional[float] = ..., runtime_states: _Optional[_Iterable[_Union[RuntimeState, _Mapping]]] = ..., lease_runtimes: _Optional[_Iterable[str]] = ..., doubtful_jobs: _Optional[_Iterable[_Union[DoubtfulJob, _Mapping]]] = ..., site_nodes: _Optional[_Iterable[_Union[SiteNodes, _Mapping]]] = ..., reach: _Optional[str] = ..., undialed: _Optional[_Mapping[str, str]] = ..., not_ready: _Optional[str] = ..., suspend_runtimes: _Optional[_Iterable[str]] = ...) -> None: ...

class SiteNodes(_message.Message):
    __slots__ = ("name", "used", "total")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    used: int
    total: int
    def __init__(self, name: _Optional[str] = ..., used: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class DoubtfulJob(_message.Message):
    __slots__ = ("runtime", "name", "job_id", "since", "why", "tried")
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    runtime: str
    name: str
    job_id: str
    since: float
    why: str
    tried: str
    def __init__(self, runtime: _Optional[str] = ..., name: _Optional[str] = ..., job_id: _Optional[str] = ..., since: _Optional[float] = ..., why: _Optional[str] = ..., tried: _Optional[str] = ...) -> None: ...

class RuntimeState(_message.Message):
    __slots__ = ("name", "listed", "silence_grace_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    listed: bool
    silence_grace_s: float
    def __init__(self, name: _Optional[str] = ..., listed: _Optional[bool] = ..., silence_grace_s: _Optional[float] = ...) -> None: ...

class AppPort(_message.Message):
    __slots__ = ("name", "port", "protocol", "base_path", "inner", "guarded")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    BASE_PATH_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    GUARDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    port: int
    protocol: str
    base_path: bool
    inner: int
    guarded: bool
    def __init__(self, name: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ..., base_path: _Optional[bool] = ..., inner: _Optional[int] = ..., guarded: _Optional[bool] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("kernel_id", "session_id", "state", "host", "port", "exit_code", "reason", "detail", "log_tail", "apps", "unhealthy", "expected_start", "ends_at", "reload", "kept_until")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    APPS_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_START_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    KEPT_UNTIL_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    session_id: str
    state: str
    host: str
    port: int
    exit_code: int
    reason: str
    detail: str
    log_tail: str
    apps: _containers.RepeatedCompositeFieldContainer[AppPort]
    unhealthy: str
    expected_start: float
    ends_at: float
    reload: Reloaded
    kept_until: float
    def __init__(self, kernel_id: _Optional[str] = ..., session_id: _Optional[str] = ..., state: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., log_tail: _Optional[str] = ..., apps: _Optional[_Iterable[_Union[AppPort, _Mapping]]] = ..., unhealthy: _Optional[str] = ..., expected_start: _Optional[float] = ..., ends_at: _Optional[float] = ..., reload: _Optional[_Union[Reloaded, _Mapping]] = ..., kept_until: _Optional[float] = ...) -> None: ...

class Reloaded(_message.Message):
    __slots__ = ("generation", "outcome", "detail")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    generation: int
    outcome: str
    detail: str
    def __init__(self, generation: _Optional[int] = ..., outcome: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("info", "incarnation", "orders_generation", "kernels", "draining", "delta", "removed", "orders_wanted", "sent_at", "stream", "content_digest", "usage", "newest_generation")
    INFO_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ORDERS_GENERATION_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ORDERS_WANTED_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CONTENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_GENERATION_FIELD_NUMBER: _ClassVar[int]
    info: AgentInfo
    incarnation: str
    orders_generation: int
    kernels: _containers.RepeatedScalarFieldContainer[bytes]
    draining: bool
    delta: bool
    removed: _containers.RepeatedScalarFieldContainer[str]
    orders_wanted: bool
    sent_at: int
    stream: int
    content_digest: int
    usage: UsageReport
    newest_generation: int
    def __init__(self, info: _Optional[_Union[AgentInfo, _Mapping]] = ..., incarnation: _Optional[str] = ..., orders_generation: _Optional[int] = ..., kernels: _Optional[_Iterable[bytes]] = ..., draining: _Optional[bool] = ..., delta: _Optional[bool] = ..., removed: _Optional[_Iterable[str]] = ..., orders_wanted: _Optional[bool] = ..., sent_at: _Optional[int] = ..., stream: _Optional[int] = ..., content_digest: _Optional[int] = ..., usage: _Optional[_Union[UsageReport, _Mapping]] = ..., newest_generation: _Optional[int] = ...) -> None: ...

class DeviceGrant(_message.Message):
    __slots__ = ("slot", "device_id", "amount")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    slot: str
    device_id: str
    amount: int
    def __init__(self, slot: _Optional[str] = ..., device_id: _Optional[str] = ..., amount: _Optional[int] = ...) -> None: ...

class ClusterMember(_message.Message):
    __slots__ = ("hostname", "address")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    address: str
    def __init__(self, hostname: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class ClusterMembership(_message.Message):
    __slots__ = ("hostname", "role", "index", "mode", "group", "members", "private_key", "public_key")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    role: str
    index: int
    mode: str
    group: str
    members: _containers.RepeatedCompositeFieldContainer[ClusterMember]
    private_key: str
    public_key: str
    def __init__(self, hostname: _Optional[str] = ..., role: _Optional[str] = ..., index: _Optional[int] = ..., mode: _Optional[str] = ..., group: _Optional[str] = ..., members: _Optional[_Iterable[_Union[ClusterMember, _Mapping]]] = ..., private_key: _Optional[str] = ..., public_key: _Optional[str] = ...) -> None: ...

class KernelSpec(_message.Message):
    __slots__ = ("kernel_id", "session_id", "session_name", "session_type", "runtime", "engine", "served_name", "model", "args", "command", "env", "probe_path", "probe_period_s", "slots", "devices", "secret", "start_timeout_s", "stop_grace_s", "endpoint_id", "image", "cluster", "ports", "container_user", "workspace", "lease_s", "isolated", "hpc", "outputs", "inputs", "reload", "reload_generation", "traceparent", "checkpoint_signal", "checkpoint_grace_s", "attempt", "user", "project", "time_limit_s", "suspended", "tasks")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SlotsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    SESSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SERVED_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PROBE_PATH_FIELD_NUMBER: _ClassVar[int]
    PROBE_PERIOD_S_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_USER_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    ISOLATED_FIELD_NUMBER: _ClassVar[int]
    HPC_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    RELOAD_GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    session_id: str
    session_name: str
    session_type: str
    runtime: str
    engine: str
    served_name: str
    model: str
    args: _containers.RepeatedScalarFieldContainer[str]
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    probe_path: str
    probe_period_s: float
    slots: _containers.ScalarMap[str, int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceGrant]
    secret: str
    start_timeout_s: float
    stop_grace_s: float
    endpoint_id: str
    image: str
    cluster: ClusterMembership
    ports: _containers.RepeatedCompositeFieldContainer[AppPort]
    container_user: str
    workspace: str
    lease_s: float
    isolated: bool
    hpc: HpcJob
    outputs: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.RepeatedCompositeFieldContainer[KernelInput]
    reload: Reload
    reload_generation: int
    traceparent: str
    checkpoint_signal: str
    checkpoint_grace_s: float
    attempt: int
    user: str
    project: str
    time_limit_s: float
    suspended: bool
    tasks: KernelTasks
    def __init__(self, kernel_id: _Optional[str] = ..., session_id: _Optional[str] = ..., session_name: _Optional[str] = ..., session_type: _Optional[str] = ..., runtime: _Optional[str] = ..., engine: _Optional[str] = ..., served_name: _Optional[str] = ..., model: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., probe_path: _Optional[str] = ..., probe_period_s: _Optional[float] = ..., slots: _Optional[_Mapping[str, int]] = ..., devices: _Optional[_Iterable[_Union[DeviceGrant, _Mapping]]] = ..., secret: _Optional[str] = ..., start_timeout_s: _Optional[float] = ..., stop_grace_s: _Optional[float] = ..., endpoint_id: _Optional[str] = ..., image: _Optional[str] = ..., cluster: _Optional[_Union[ClusterMembership, _Mapping]] = ..., ports: _Optional[_Iterable[_Union[AppPort, _Mapping]]] = ..., container_user: _Optional[str] = ..., workspace: _Optional[str] = ..., lease_s: _Optional[float] = ..., isolated: _Optional[bool] = ..., hpc: _Optional[_Union[HpcJob, _Mapping]] = ..., outputs: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Iterable[_Union[KernelInput, _Mapping]]] = ..., reload: _Optional[_Union[Reload, _Mapping]] = ..., reload_generation: _Optional[int] = ..., traceparent: _Optional[str] = ..., checkpoint_signal: _Optional[str] = ..., checkpoint_grace_s: _Optional[float] = ..., attempt: _Optional[int] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., time_limit_s: _Optional[float] = ..., suspended: _Optional[bool] = ..., tasks: _Optional[_Union[KernelTasks, _Mapping]] = ...) -> None: ...

class KernelTasks(_message.Message):
    __slots__ = ("command", "workers", "timeout_s")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    command: _containers.RepeatedScalarFieldContainer[str]
    workers: int
    timeout_s: float
    def __init__(self, command: _Optional[_Iterable[str]] = ..., workers: _Optional[int] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class TaskExchange(_message.Message):
    __slots__ = ("agent_id", "kernel_id", "received", "wanted", "ended", "over", "complete")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    kernel_id: str
    received: int
    wanted: int
    ended: _containers.RepeatedCompositeFieldContainer[TaskEnd]
    over: bool
    complete: bool
    def __init__(self, agent_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., received: _Optional[int] = ..., wanted: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[TaskEnd, _Mapping]]] = ..., over: _Optional[bool] = ..., complete: _Optional[bool] = ...) -> None: ...

class TaskEnd(_message.Message):
    __slots__ = ("number", "attempt", "state", "exit_code", "started_at", "seconds", "output", "detail")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    number: int
    attempt: int
    state: str
    exit_code: int
    started_at: float
    seconds: float
    output: bytes
    detail: str
    def __init__(self, number: _Optional[int] = ..., attempt: _Optional[int] = ..., state: _Optional[str] = ..., exit_code: _Optional[int] = ..., started_at: _Optional[float] = ..., seconds: _Optional[float] = ..., output: _Optional[bytes] = ..., detail: _Optional[str] = ...) -> None: ...

class TaskAnswer(_message.Message):
    __slots__ = ("known", "given", "total", "succeeded", "failed", "lost", "finished")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    known: bool
    given: _containers.RepeatedCompositeFieldContainer[GivenTask]
    total: int
    succeeded: int
    failed: int
    lost: int
    finished: bool
    def __init__(self, known: _Optional[bool] = ..., given: _Optional[_Iterable[_Union[GivenTask, _Mapping]]] = ..., total: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., lost: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class GivenTask(_message.Message):
    __slots__ = ("seq", "number", "attempt", "line")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    number: int
    attempt: int
    line: str
    def __init__(self, seq: _Optional[int] = ..., number: _Optional[int] = ..., attempt: _Optional[int] = ..., line: _Optional[str] = ...) -> None: ...

class KernelInput(_message.Message):
    __slots__ = ("session_id", "output", "path")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    output: str
    path: str
    def __init__(self, session_id: _Optional[str] = ..., output: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class Reload(_message.Message):
    __slots__ = ("signal", "path", "port", "acknowledge", "timeout_s")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    signal: str
    path: str
    port: str
    acknowledge: str
    timeout_s: float
    def __init__(self, signal: _Optional[str] = ..., path: _Optional[str] = ..., port: _Optional[str] = ..., acknowledge: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class HpcJob(_message.Message):
    __slots__ = ("cluster", "node_type", "project", "template", "partition", "qos", "account", "walltime_s", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_S_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node_type: str
    project: str
    template: str
    partition: str
    qos: str
    account: str
    walltime_s: float
    options: _containers.ScalarMap[str, str]
    def __init__(self, cluster: _Optional[str] = ..., node_type: _Optional[str] = ..., project: _Optional[str] = ..., template: _Optional[str] = ..., partition: _Optional[str] = ..., qos: _Optional[str] = ..., account: _Optional[str] = ..., walltime_s: _Optional[float] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Orders(_message.Message):
    __slots__ = ("generation", "kernels", "delta", "base", "withdrawn", "digest")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    generation: int
    kernels: _containers.RepeatedCompositeFieldContainer[KernelSpec]
    delta: bool
    base: int
    withdrawn: _containers.RepeatedScalarFieldContainer[str]
    digest: int
    def __init__(self, generation: _Optional[int] = ..., kernels: _Optional[_Iterable[_Union[KernelSpec, _Mapping]]] = ..., delta: _Optional[bool] = ..., base: _Optional[int] = ..., withdrawn: _Optional[_Iterable[str]] = ..., digest: _Optional[int] = ...) -> None: ...

class FullReportRequest(_message.Message):
    __slots__ = ("no_database", "manager")
    NO_DATABASE_FIELD_NUMBER: _ClassVar[int]
    MANAGER_FIELD_NUMBER: _ClassVar[int]
    no_database: bool
    manager: str
    def __init__(self, no_database: _Optional[bool] = ..., manager: _Optional[str] = ...) -> None: ...

class Contact(_message.Message):
    __slots__ = ("sent_at",)
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    sent_at: int
    def __init__(self, sent_at: _Optional[int] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("request_id", "kernel_id", "tail_lines", "follow", "output", "session_id", "timestamps", "since_ms", "offset")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kernel_id: str
    tail_lines: int
    follow: bool
    output: str
    session_id: str
    timestamps: bool
    since_ms: int
    offset: int
    def __init__(self, request_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., tail_lines: _Optional[int] = ..., follow: _Optional[bool] = ..., output: _Optional[str] = ..., session_id: _Optional[str] = ..., timestamps: _Optional[bool] = ..., since_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class OutputRequest(_message.Message):
    __slots__ = ("agent_id", "kernel_id", "session_id", "output")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    kernel_id: str
    session_id: str
    output: str
    def __init__(self, agent_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., session_id: _Optional[str] = ..., output: _Optional[str] = ...) -> None: ...

class KeptOutputs(_message.Message):
    __slots__ = ("agent_id", "session_ids")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_IDS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_id: _Optional[str] = ..., session_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkspaceRequest(_message.Message):
    __slots__ = ("request_id", "remove")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    remove: str
    def __init__(self, request_id: _Optional[str] = ..., remove: _Optional[str] = ...) -> None: ...

class Workspace(_message.Message):
    __slots__ = ("session_id", "size", "changed_at", "in_use")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    size: int
    changed_at: float
    in_use: bool
    def __init__(self, session_id: _Optional[str] = ..., size: _Optional[int] = ..., changed_at: _Optional[float] = ..., in_use: _Optional[bool] = ...) -> None: ...

class WorkspaceAnswer(_message.Message):
    __slots__ = ("request_id", "workspaces", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    workspaces: _containers.RepeatedCompositeFieldContainer[Workspace]
    error: str
    def __init__(self, request_id: _Optional[str] = ..., workspaces: _Optional[_Iterable[_Union[Workspace, _Mapping]]] = ..., error: _Optional[str] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("request_id", "kernel_id", "command", "tty", "stdin", "rows", "cols", "env", "code", "files", "path", "name")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kernel_id: str
    command: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    stdin: bool
    rows: int
    cols: int
    env: _containers.ScalarMap[str, str]
    code: str
    files: str
    path: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., stdin: _Optional[bool] = ..., rows: _Optional[int] = ..., cols: _Optional[int] = ..., env: _Optional[_Mapping[str, str]] = ..., code: _Optional[str] = ..., files: _Optional[str] = ..., path: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ManagerMessage(_message.Message):
    __slots__ = ("orders", "logs", "full_report", "exec", "workspaces", "contact", "report_pause_ms", "report_deltas", "heartbeat_ms", "hold_usage", "managers", "dialout")
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    FULL_REPORT_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    REPORT_PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    REPORT_DELTAS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    HOLD_USAGE_FIELD_NUMBER: _ClassVar[int]
    MANAGERS_FIELD_NUMBER: _ClassVar[int]
    DIALOUT_FIELD_NUMBER: _ClassVar[int]
    orders: Orders
    logs: LogRequest
    full_report: FullReportRequest
    exec: ExecRequest
    workspaces: WorkspaceRequest
    contact: Contact
    report_pause_ms: int
    report_deltas: bool
    heartbeat_ms: int
    hold_usage: bool
    managers: _containers.RepeatedScalarFieldContainer[str]
    dialout: ProxyAddresses
    def __init__(self, orders: _Optional[_Union[Orders, _Mapping]] = ..., logs: _Optional[_Union[LogRequest, _Mapping]] = ..., full_report: _Optional[_Union[FullReportRequest, _Mapping]] = ..., exec: _Optional[_Union[ExecRequest, _Mapping]] = ..., workspaces: _Optional[_Union[WorkspaceRequest, _Mapping]] = ..., contact: _Optional[_Union[Contact, _Mapping]] = ..., report_pause_ms: _Optional[int] = ..., report_deltas: _Optional[bool] = ..., heartbeat_ms: _Optional[int] = ..., hold_usage: _Optional[bool] = ..., managers: _Optional[_Iterable[str]] = ..., dialout: _Optional[_Union[ProxyAddresses, _Mapping]] = ...) -> None: ...

class ProxyAddresses(_message.Message):
    __slots__ = ("addresses", "revoked")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    revoked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, addresses: _Optional[_Iterable[str]] = ..., revoked: _Optional[_Iterable[str]] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("request_id", "data", "error", "end", "marks_end", "timed", "offset")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MARKS_END_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    data: bytes
    error: str
    end: bool
    marks_end: bool
    timed: bool
    offset: int
    def __init__(self, request_id: _Optional[str] = ..., data: _Optional[bytes] = ..., error: _Optional[str] = ..., end: _Optional[bool] = ..., marks_end: _Optional[bool] = ..., timed: _Optional[bool] = ..., offset: _Optional[int] = ...) -> None: ...

class LogAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Use(_message.Message):
    __slots__ = ("cpu", "memory", "rx", "tx", "gpu", "gpu_memory")
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    RX_FIELD_NUMBER: _ClassVar[int]
    TX_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_FIELD_NUMBER: _ClassVar[int]
    cpu: int
    memory: int
    rx: int
    tx: int
    gpu: int
    gpu_memory: int
    def __init__(self, cpu: _Optional[int] = ..., memory: _Optional[int] = ..., rx: _Optional[int] = ..., tx: _Optional[int] = ..., gpu: _Optional[int] = ..., gpu_memory: _Optional[int] = ...) -> None: ...

class KernelUse(_message.Message):
    __slots__ = ("kernel_id", "use")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    use: Use
    def __init__(self, kernel_id: _Optional[str] = ..., use: _Optional[_Union[Use, _Mapping]] = ...) -> None: ...

class KernelMinute(_message.Message):
    __slots__ = ("kernel_id", "at", "samples", "mean", "peak")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    at: int
    samples: int
    mean: Use
    peak: Use
    def __init__(self, kernel_id: _Optional[str] = ..., at: _Optional[int] = ..., samples: _Optional[int] = ..., mean: _Optional[_Union[Use, _Mapping]] = ..., peak: _Optional[_Union[Use, _Mapping]] = ...) -> None: ...

class DeviceUse(_message.Message):
    __slots__ = ("device_id", "memory", "gpu", "temperature", "power")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    memory: int
    gpu: int
    temperature: int
    power: int
    def __init__(self, device_id: _Optional[str] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ..., temperature: _Optional[int] = ..., power: _Optional[int] = ...) -> None: ...

class EngineUse(_message.Message):
    __slots__ = ("kernel_id", "running", "waiting", "kv_cache", "max_model_len")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    running: int
    waiting: int
    kv_cache: int
    max_model_len: int
    def __init__(self, kernel_id: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_cache: _Optional[int] = ..., max_model_len: _Optional[int] = ...) -> None: ...

class KernelProgress(_message.Message):
    __slots__ = ("kernel_id", "fraction", "step", "of", "message", "problem")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    fraction: float
    step: int
    of: int
    message: str
    problem: str
    def __init__(self, kernel_id: _Optional[str] = ..., fraction: _Optional[float] = ..., step: _Optional[int] = ..., of: _Optional[int] = ..., message: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("agent_id", "incarnation", "cpu", "memory", "kernels", "devices", "minutes", "engines", "progress")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    incarnation: str
    cpu: int
    memory: int
    kernels: _containers.RepeatedCompositeFieldContainer[KernelUse]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceUse]
    minutes: _containers.RepeatedCompositeFieldContainer[KernelMinute]
    engines: _containers.RepeatedCompositeFieldContainer[EngineUse]
    progress: _containers.RepeatedCompositeFieldContainer[KernelProgress]
    def __init__(self, agent_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., cpu: _Optional[int] = ..., memory: _Optional[int] = ..., kernels: _Optional[_Iterable[_Union[KernelUse, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[DeviceUse, _Mapping]]] = ..., minutes: _Optional[_Iterable[_Union[KernelMinute, _Mapping]]] = ..., engines: _Optional[_Iterable[_Union[EngineUse, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[KernelProgress, _Mapping]]] = ...) -> None: ...

class UsageAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("rows", "cols")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    cols: int
    def __init__(self, rows: _Optional[int] = ..., cols: _Optional[int] = ...) -> None: ...

class ExecInput(_message.Message):
    __slots__ = ("stdin", "stdin_ended", "size")
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDIN_ENDED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    stdin: bytes
    stdin_ended: bool
    size: TerminalSize
    def __init__(self, stdin: _Optional[bytes] = ..., stdin_ended: _Optional[bool] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class ExecEnd(_message.Message):
    __slots__ = ("exit_code", "code", "detail", "next_step")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    code: str
    detail: str
    next_step: str
    def __init__(self, exit_code: _Optional[int] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ..., next_step: _Optional[str] = ...) -> None: ...

class ExecOutput(_message.Message):
    __slots__ = ("request_id", "stdout", "stderr", "end")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stdout: bytes
    stderr: bytes
    end: ExecEnd
    def __init__(self, request_id: _Optional[str] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., end: _Optional[_Union[ExecEnd, _Mapping]] = ...) -> None: ...
