from moorage.common.link.pb import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SshHostKeyRequest(_message.Message):
    __slots__ = ("proxy_id",)
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    def __init__(self, proxy_id: _Optional[str] = ...) -> None: ...

class SshHostKey(_message.Message):
    __slots__ = ("private_key",)
    PRIVATE_KEY_FIELD_NUMBER: _ClassVar[int]
    private_key: str
    def __init__(self, private_key: _Optional[str] = ...) -> None: ...

class SshLogin(_message.Message):
    __slots__ = ("proxy_id", "login", "fingerprint", "address", "proof")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    login: str
    fingerprint: str
    address: str
    proof: SshProof
    def __init__(self, proxy_id: _Optional[str] = ..., login: _Optional[str] = ..., fingerprint: _Optional[str] = ..., address: _Optional[str] = ..., proof: _Optional[_Union[SshProof, _Mapping]] = ...) -> None: ...

class SshProof(_message.Message):
    __slots__ = ("key", "signed", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signed: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., signed: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SshTarget(_message.Message):
    __slots__ = ("refusal", "session_id")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    session_id: str
    def __init__(self, refusal: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class SshStart(_message.Message):
    __slots__ = ("login", "session", "spec", "watch")
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    login: SshLogin
    session: str
    spec: str
    watch: bool
    def __init__(self, login: _Optional[_Union[SshLogin, _Mapping]] = ..., session: _Optional[str] = ..., spec: _Optional[str] = ..., watch: _Optional[bool] = ...) -> None: ...

class SshInput(_message.Message):
    __slots__ = ("start", "input")
    START_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    start: SshStart
    input: _agent_pb2.ExecInput
    def __init__(self, start: _Optional[_Union[SshStart, _Mapping]] = ..., input: _Optional[_Union[_agent_pb2.ExecInput, _Mapping]] = ...) -> None: ...

class SshFolder(_message.Message):
    __slots__ = ("login", "project")
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    login: SshLogin
    project: str
    def __init__(self, login: _Optional[_Union[SshLogin, _Mapping]] = ..., project: _Optional[str] = ...) -> None: ...

class SshEntries(_message.Message):
    __slots__ = ("names", "refusal")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    refusal: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., refusal: _Optional[str] = ...) -> None: ...
