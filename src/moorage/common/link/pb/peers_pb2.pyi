from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("authorities",)
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    authorities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, authorities: _Optional[_Iterable[str]] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("version", "now_ms", "managers", "no_database", "authorities", "renew", "installation")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    MANAGERS_FIELD_NUMBER: _ClassVar[int]
    NO_DATABASE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    version: str
    now_ms: int
    managers: _containers.RepeatedScalarFieldContainer[str]
    no_database: bool
    authorities: _containers.RepeatedScalarFieldContainer[str]
    renew: bool
    installation: str
    def __init__(self, version: _Optional[str] = ..., now_ms: _Optional[int] = ..., managers: _Optional[_Iterable[str]] = ..., no_database: _Optional[bool] = ..., authorities: _Optional[_Iterable[str]] = ..., renew: _Optional[bool] = ..., installation: _Optional[str] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("csr",)
    CSR_FIELD_NUMBER: _ClassVar[int]
    csr: str
    def __init__(self, csr: _Optional[str] = ...) -> None: ...

class RenewReply(_message.Message):
    __slots__ = ("certificate", "now_ms")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    certificate: str
    now_ms: int
    def __init__(self, certificate: _Optional[str] = ..., now_ms: _Optional[int] = ...) -> None: ...
