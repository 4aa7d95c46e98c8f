from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("proxy_id", "have_generation", "accepts_unchanged", "accepts_changes")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    HAVE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_CHANGES_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    have_generation: int
    accepts_unchanged: bool
    accepts_changes: bool
    def __init__(self, proxy_id: _Optional[str] = ..., have_generation: _Optional[int] = ..., accepts_unchanged: _Optional[bool] = ..., accepts_changes: _Optional[bool] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("session_id", "kernel_id", "host", "port", "key", "engine", "draining")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    kernel_id: str
    host: str
    port: int
    key: str
    engine: str
    draining: bool
    def __init__(self, session_id: _Optional[str] = ..., kernel_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., key: _Optional[str] = ..., engine: _Optional[str] = ..., draining: _Optional[bool] = ...) -> None: ...

class ModelRoute(_message.Message):
    __slots__ = ("name", "created", "targets", "project", "shared_with")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    SHARED_WITH_FIELD_NUMBER: _ClassVar[int]
    name: str
    created: int
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    project: str
    shared_with: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., created: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., project: _Optional[str] = ..., shared_with: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyGrant(_message.Message):
    __slots__ = ("sha256", "expires_at", "user", "project", "admin", "project_admin", "limits_models", "models")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ADMIN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_MODELS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    expires_at: int
    user: str
    project: str
    admin: bool
    project_admin: bool
    limits_models: bool
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sha256: _Optional[str] = ..., expires_at: _Optional[int] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., admin: _Optional[bool] = ..., project_admin: _Optional[bool] = ..., limits_models: _Optional[bool] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class AppRoute(_message.Message):
    __slots__ = ("session_id", "app", "protocol", "base_path", "host", "port", "key", "user", "project")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    BASE_PATH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    app: str
    protocol: str
    base_path: bool
    host: str
    port: int
    key: str
    user: str
    project: str
    def __init__(self, session_id: _Optional[str] = ..., app: _Optional[str] = ..., protocol: _Optional[str] = ..., base_path: _Optional[bool] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., key: _Optional[str] = ..., user: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("generation", "models", "keys", "apps", "access_tokens", "unchanged", "base", "removed_models", "removed_keys", "removed_apps", "removed_access_tokens")
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
    def __init__(self, generation: _Optional[int] = ..., models: _Optional[_Iterable[_Union[ModelRoute, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[KeyGrant, _Mapping]]] = ..., apps: _Optional[_Iterable[_Union[AppRoute, _Mapping]]] = ..., access_tokens: _Optional[_Iterable[_Union[AccessTokenGrant, _Mapping]]] = ..., unchanged: _Optional[bool] = ..., base: _Optional[int] = ..., removed_models: _Optional[_Iterable[str]] = ..., removed_keys: _Optional[_Iterable[str]] = ..., removed_apps: _Optional[_Iterable[str]] = ..., removed_access_tokens: _Optional[_Iterable[str]] = ...) -> None: ...
