from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("proxy_id", "have_generation", "accepts_unchanged", "accepts_changes", "without_credentials")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    HAVE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_CHANGES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    have_generation: int
    accepts_unchanged: bool
    accepts_changes: bool
    without_credentials: bool
    def __init__(self, proxy_id: _Optional[str] = ..., have_generation: _Optional[int] = ..., accepts_unchanged: _Optional[bool] = ..., accepts_changes: _Optional[bool] = ..., without_credentials: _Optional[bool] = ...) -> None: ...

class RequestLimits(_message.Message):
    __slots__ = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
    REQUESTS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests_per_minute: int
    tokens_per_minute: int
    concurrent_requests: int
    def __init__(self, requests_per_minute: _Optional[int] = ..., tokens_per_minute: _Optional[int] = ..., concurrent_requests: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("session_id", "kernel_id", "host", "port", "key", "engine", "draining", "accepts_priority", "tls", "prefix", "adapters", "canary", "peer_id", "lacks")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    LACKS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    kernel_id: str
    host: str
    port: int
    key: str
    engine: str
    draining: bool
    accepts_priority: bool
    tls: bool
    prefix: str
    adapters: _containers.RepeatedScalarFieldContainer[str]
    canary: bool
    peer_id: str
    lacks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., key: _Optional[str] = ..., engine: _Optional[str] = ..., draining: _Optional[bool] = ..., accepts_priority: _Optional[bool] = ..., tls: _Optional[bool] = ..., prefix: _Optional[str] = ..., adapters: _Optional[_Iterable[str]] = ..., canary: _Optional[bool] = ..., peer_id: _Optional[str] = ..., lacks: _Optional[_Iterable[str]] = ...) -> None: ...

class Fallback(_message.Message):
    __slots__ = ("model", "provider")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    model: str
    provider: Target
    def __init__(self, model: _Optional[str] = ..., provider: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class ModelRoute(_message.Message):
    __slots__ = ("name", "created", "targets", "project", "shared_with", "limits", "holds", "status", "expected_s", "ready_at", "max_model_len", "fallbacks", "fallback_after_s", "prefix_affinity", "suspended_until", "canary", "apis", "adapters", "max_body_bytes", "max_load")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    SHARED_WITH_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    READY_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    PREFIX_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    APIS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_LOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    created: int
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    project: str
    shared_with: _containers.RepeatedScalarFieldContainer[str]
    limits: RequestLimits
    holds: bool
    status: str
    expected_s: int
    ready_at: int
    max_model_len: int
    fallbacks: _containers.RepeatedCompositeFieldContainer[Fallback]
    fallback_after_s: float
    prefix_affinity: bool
    suspended_until: int
    canary: int
    apis: _containers.RepeatedScalarFieldContainer[str]
    adapters: _containers.RepeatedScalarFieldContainer[str]
    max_body_bytes: int
    max_load: float
    def __init__(self, name: _Optional[str] = ..., created: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., project: _Optional[str] = ..., shared_with: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[RequestLimits, _Mapping]] = ..., holds: _Optional[bool] = ..., status: _Optional[str] = ..., expected_s: _Optional[int] = ..., ready_at: _Optional[int] = ..., max_model_len: _Optional[int] = ..., fallbacks: _Optional[_Iterable[_Union[Fallback, _Mapping]]] = ..., fallback_after_s: _Optional[float] = ..., prefix_affinity: _Optional[bool] = ..., suspended_until: _Optional[int] = ..., canary: _Optional[int] = ..., apis: _Optional[_Iterable[str]] = ..., adapters: _Optional[_Iterable[str]] = ..., max_body_bytes: _Optional[int] = ..., max_load: _Optional[float] = ...) -> None: ...

class KeyGrant(_message.Message):
    __slots__ = ("sha256", "expires_at", "user", "project", "admin", "project_admin", "limits_models", "models", "id", "limits", "priority", "owner", "exhausted_until", "warned_until", "budgets", "max_body_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ADMIN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_MODELS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    WARNED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    expires_at: int
    user: str
    project: str
    admin: bool
    project_admin: bool
    limits_models: bool
    models: _containers.RepeatedScalarFieldContainer[str]
    id: str
    limits: RequestLimits
    priority: int
    owner: str
    exhausted_until: int
    warned_until: int
    budgets: _containers.RepeatedCompositeFieldContainer[BudgetGrant]
    max_body_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., expires_at: _Optional[int] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., admin: _Optional[bool] = ..., project_admin: _Optional[bool] = ..., limits_models: _Optional[bool] = ..., models: _Optional[_Iterable[str]] = ..., id: _Optional[str] = ..., limits: _Optional[_Union[RequestLimits, _Mapping]] = ..., priority: _Optional[int] = ..., owner: _Optional[str] = ..., exhausted_until: _Optional[int] = ..., warned_until: _Optional[int] = ..., budgets: _Optional[_Iterable[_Union[BudgetGrant, _Mapping]]] = ..., max_body_bytes: _Optional[int] = ...) -> None: ...

class BudgetGrant(_message.Message):
    __slots__ = ("subject", "unit", "hard")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    subject: str
    unit: str
    hard: int
    def __init__(self, subject: _Optional[str] = ..., unit: _Optional[str] = ..., hard: _Optional[int] = ...) -> None: ...

class ProjectGrant(_message.Message):
    __slots__ = ("name", "limits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    limits: RequestLimits
    def __init__(self, name: _Optional[str] = ..., limits: _Optional[_Union[RequestLimits, _Mapping]] = ...) -> None: ...

class AppRoute(_message.Message):
    __slots__ = ("session_id", "app", "protocol", "base_path", "host", "port", "key", "user", "project", "idle_ends_at", "idle_criterion", "unisolated", "peer_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    BASE_PATH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    IDLE_ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    IDLE_CRITERION_FIELD_NUMBER: _ClassVar[int]
    UNISOLATED_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    app: str
    protocol: str
    base_path: bool
    host: str
    port: int
    key: str
    user: str
    project: str
    idle_ends_at: int
    idle_criterion: str
    unisolated: bool
    peer_id: str
    def __init__(self, session_id: _Optional[str] = ..., app: _Optional[str] = ..., protocol: _Optional[str] = ..., base_path: _Optional[bool] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., key: _Optional[str] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., idle_ends_at: _Optional[int] = ..., idle_criterion: _Optional[str] = ..., unisolated: _Optional[bool] = ..., peer_id: _Optional[str] = ...) -> None: ...

class AccessTokenGrant(_message.Message):
    __slots__ = ("sha256", "session_id", "app", "expires_at")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    session_id: str
    app: str
    expires_at: int
    def __init__(self, sha256: _Optional[str] = ..., session_id: _Optional[str] = ..., app: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class RouteTable(_message.Message):
    __slots__ = ("generation", "models", "keys", "apps", "access_tokens", "unchanged", "base", "removed_models", "removed_keys", "removed_apps", "removed_access_tokens", "projects", "removed_projects", "revoked_agents", "removed_revoked_agents")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    APPS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_MODELS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_KEYS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_APPS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_ACCESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_PROJECTS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AGENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_REVOKED_AGENTS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    models: _containers.RepeatedCompositeFieldContainer[ModelRoute]
    keys: _containers.RepeatedCompositeFieldContainer[KeyGrant]
    apps: _containers.RepeatedCompositeFieldContainer[AppRoute]
    access_tokens: _containers.RepeatedCompositeFieldContainer[AccessTokenGrant]
    unchanged: bool
    base: int
    removed_models: _containers.RepeatedScalarFieldContainer[str]
    removed_keys: _containers.RepeatedScalarFieldContainer[str]
    removed_apps: _containers.RepeatedScalarFieldContainer[str]
    removed_access_tokens: _containers.RepeatedScalarFieldContainer[str]
    projects: _containers.RepeatedCompositeFieldContainer[ProjectGrant]
    removed_projects: _containers.RepeatedScalarFieldContainer[str]
    revoked_agents: _containers.RepeatedScalarFieldContainer[str]
    removed_revoked_agents: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., models: _Optional[_Iterable[_Union[ModelRoute, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[KeyGrant, _Mapping]]] = ..., apps: _Optional[_Iterable[_Union[AppRoute, _Mapping]]] = ..., access_tokens: _Optional[_Iterable[_Union[AccessTokenGrant, _Mapping]]] = ..., unchanged: _Optional[bool] = ..., base: _Optional[int] = ..., removed_models: _Optional[_Iterable[str]] = ..., removed_keys: _Optional[_Iterable[str]] = ..., removed_apps: _Optional[_Iterable[str]] = ..., removed_access_tokens: _Optional[_Iterable[str]] = ..., projects: _Optional[_Iterable[_Union[ProjectGrant, _Mapping]]] = ..., removed_projects: _Optional[_Iterable[str]] = ..., revoked_agents: _Optional[_Iterable[str]] = ..., removed_revoked_agents: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplicaLoad(_message.Message):
    __slots__ = ("session_id", "in_flight", "failing_s", "answers")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    FAILING_S_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    in_flight: int
    failing_s: float
    answers: bool
    def __init__(self, session_id: _Optional[str] = ..., in_flight: _Optional[int] = ..., failing_s: _Optional[float] = ..., answers: _Optional[bool] = ...) -> None: ...

class ModelLoad(_message.Message):
    __slots__ = ("model", "in_flight", "waiting", "requests", "idle_s", "first_token_ms", "replicas", "errors", "tokens_in", "tokens_out")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_IN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_OUT_FIELD_NUMBER: _ClassVar[int]
    model: str
    in_flight: int
    waiting: int
    requests: int
    idle_s: float
    first_token_ms: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaLoad]
    errors: int
    tokens_in: int
    tokens_out: int
    def __init__(self, model: _Optional[str] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., requests: _Optional[int] = ..., idle_s: _Optional[float] = ..., first_token_ms: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaLoad, _Mapping]]] = ..., errors: _Optional[int] = ..., tokens_in: _Optional[int] = ..., tokens_out: _Optional[int] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("proxy_id", "incarnation", "routes_generation", "models", "whole", "apps", "tells_apps")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROUTES_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    APPS_FIELD_NUMBER: _ClassVar[int]
    TELLS_APPS_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    incarnation: str
    routes_generation: int
    models: _containers.RepeatedCompositeFieldContainer[ModelLoad]
    whole: bool
    apps: _containers.RepeatedScalarFieldContainer[str]
    tells_apps: bool
    def __init__(self, proxy_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., routes_generation: _Optional[int] = ..., models: _Optional[_Iterable[_Union[ModelLoad, _Mapping]]] = ..., whole: _Optional[bool] = ..., apps: _Optional[_Iterable[str]] = ..., tells_apps: _Optional[bool] = ...) -> None: ...

class UsageRecord(_message.Message):
    __slots__ = ("sequence", "began_ms", "ended_ms", "project", "user", "key_id", "model", "requests", "tokens_in", "tokens_out", "tokens_cached", "session_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_IN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_OUT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_CACHED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    began_ms: int
    ended_ms: int
    project: str
    user: str
    key_id: str
    model: str
    requests: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    session_id: str
    def __init__(self, sequence: _Optional[int] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., project: _Optional[str] = ..., user: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., requests: _Optional[int] = ..., tokens_in: _Optional[int] = ..., tokens_out: _Optional[int] = ..., tokens_cached: _Optional[int] = ..., session_id: _Optional[str] = ...) -> None: ...

class UsageBatch(_message.Message):
    __slots__ = ("epoch", "records")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    records: _containers.RepeatedCompositeFieldContainer[UsageRecord]
    def __init__(self, epoch: _Optional[str] = ..., records: _Optional[_Iterable[_Union[UsageRecord, _Mapping]]] = ...) -> None: ...

class RecordsAck(_message.Message):
    __slots__ = ("epoch", "sequence")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    sequence: int
    def __init__(self, epoch: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class LimitNeed(_message.Message):
    __slots__ = ("subject", "limit_requests", "limit_tokens", "limit_concurrent", "used_requests", "used_tokens", "used_concurrent", "wanted_requests", "wanted_tokens", "wanted_concurrent", "held_requests", "held_tokens", "held_concurrent")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    USED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    USED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USED_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    WANTED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WANTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WANTED_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    HELD_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    HELD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HELD_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    limit_requests: int
    limit_tokens: int
    limit_concurrent: int
    used_requests: int
    used_tokens: int
    used_concurrent: int
    wanted_requests: int
    wanted_tokens: int
    wanted_concurrent: int
    held_requests: int
    held_tokens: int
    held_concurrent: int
    def __init__(self, subject: _Optional[str] = ..., limit_requests: _Optional[int] = ..., limit_tokens: _Optional[int] = ..., limit_concurrent: _Optional[int] = ..., used_requests: _Optional[int] = ..., used_tokens: _Optional[int] = ..., used_concurrent: _Optional[int] = ..., wanted_requests: _Optional[int] = ..., wanted_tokens: _Optional[int] = ..., wanted_concurrent: _Optional[int] = ..., held_requests: _Optional[int] = ..., held_tokens: _Optional[int] = ..., held_concurrent: _Optional[int] = ...) -> None: ...

class LimitShare(_message.Message):
    __slots__ = ("subject", "requests", "tokens", "concurrent")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    requests: int
    tokens: int
    concurrent: int
    def __init__(self, subject: _Optional[str] = ..., requests: _Optional[int] = ..., tokens: _Optional[int] = ..., concurrent: _Optional[int] = ...) -> None: ...

class ProxyReport(_message.Message):
    __slots__ = ("proxy_id", "load", "usage", "needs", "dialout", "unreached")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    DIALOUT_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    load: LoadReport
    usage: _containers.RepeatedCompositeFieldContainer[UsageBatch]
    needs: _containers.RepeatedCompositeFieldContainer[LimitNeed]
    dialout: str
    unreached: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, proxy_id: _Optional[str] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ..., usage: _Optional[_Iterable[_Union[UsageBatch, _Mapping]]] = ..., needs: _Optional[_Iterable[_Union[LimitNeed, _Mapping]]] = ..., dialout: _Optional[str] = ..., unreached: _Optional[_Iterable[str]] = ...) -> None: ...

class EngineRequests(_message.Message):
    __slots__ = ("kernel_id", "running", "waiting", "kv_cache")
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_FIELD_NUMBER: _ClassVar[int]
    kernel_id: str
    running: int
    waiting: int
    kv_cache: int
    def __init__(self, kernel_id: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_cache: _Optional[int] = ...) -> None: ...

class ProxyReply(_message.Message):
    __slots__ = ("acks", "shares", "proxies", "managers", "engines", "manager")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    PROXIES_FIELD_NUMBER: _ClassVar[int]
    MANAGERS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    MANAGER_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[RecordsAck]
    shares: _containers.RepeatedCompositeFieldContainer[LimitShare]
    proxies: int
    managers: _containers.RepeatedScalarFieldContainer[str]
    engines: _containers.RepeatedCompositeFieldContainer[EngineRequests]
    manager: str
    def __init__(self, acks: _Optional[_Iterable[_Union[RecordsAck, _Mapping]]] = ..., shares: _Optional[_Iterable[_Union[LimitShare, _Mapping]]] = ..., proxies: _Optional[int] = ..., managers: _Optional[_Iterable[str]] = ..., engines: _Optional[_Iterable[_Union[EngineRequests, _Mapping]]] = ..., manager: _Optional[str] = ...) -> None: ...
