from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("version", "now_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    version: str
    now_ms: int
    def __init__(self, version: _Optional[str] = ..., now_ms: _Optional[int] = ...) -> None: ...

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
