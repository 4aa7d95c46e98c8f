from moorage.common.link.pb import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DatabaseIdentity(_message.Message):
    __slots__ = ("installation", "copy", "system", "timeline")
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    installation: str
    copy: str
    system: str
    timeline: int
    def __init__(self, installation: _Optional[str] = ..., copy: _Optional[str] = ..., system: _Optional[str] = ..., timeline: _Optional[int] = ...) -> None: ...

class AgentRequest(_message.Message):
    __slots__ = ("agent_id", "message")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    message: _agent_pb2.ManagerMessage
    def __init__(self, agent_id: _Optional[str] = ..., message: _Optional[_Union[_agent_pb2.ManagerMessage, _Mapping]] = ...) -> None: ...

class CommandInput(_message.Message):
    __slots__ = ("start", "input")
    START_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    start: AgentRequest
    input: _agent_pb2.ExecInput
    def __init__(self, start: _Optional[_Union[AgentRequest, _Mapping]] = ..., input: _Optional[_Union[_agent_pb2.ExecInput, _Mapping]] = ...) -> None: ...

class AgentWorkspaceAnswer(_message.Message):
    __slots__ = ("agent_id", "answer")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    answer: _agent_pb2.WorkspaceAnswer
    def __init__(self, agent_id: _Optional[str] = ..., answer: _Optional[_Union[_agent_pb2.WorkspaceAnswer, _Mapping]] = ...) -> None: ...

class WorkspaceAnswers(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[AgentWorkspaceAnswer]
    def __init__(self, agents: _Optional[_Iterable[_Union[AgentWorkspaceAnswer, _Mapping]]] = ...) -> None: ...
