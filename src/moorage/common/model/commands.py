"""Commands inside sessions: the request and the framing of their WebSocket (decision 12).

The first message is an ``ExecSpec`` as text. Every binary message consists of a channel byte and
data, as in Kubernetes' remotecommand v5.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.base import Model
from moorage.common.model.spec_fields import Argument, Env, Path, most_bytes

PROTOCOL = "exec.v1.moorage"
MAX_MESSAGE_BYTES = 1024 * 1024
CHUNK_BYTES = 32 * 1024


class Channel(IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3  # the last message, an ExecEnd
    RESIZE = 4  # a Size
    CLOSE = 255  # closes the channel whose number follows; only stdin can be closed


Lines = Annotated[int, Field(ge=0, le=65_535)]


class Size(Model):
    """Terminal size in characters; 0 means unknown."""

    rows: Lines = 0
    cols: Lines = 0


class CopySpec(Model):
    """Files that a command copies as a tar stream between the session and the command's input or
    output.

    ``path``: the path in the session. ``name``: the source's name when copying in; its entry in the
    stream is called "copy"."""

    direction: Literal["in", "out"]
    path: Path = "."
    name: Annotated[str, Field(pattern=r"^[^\x00]*$"), most_bytes(255)] = ""


class ExecSpec(Model):
    """A command to run in a session."""

    command: Annotated[list[Argument], Field(min_length=1, max_length=4096)] = Field(
        description="Program and arguments. No shell is involved."
    )
    tty: bool = Field(
        default=False,
        description="Allocate a terminal. All output is then sent on the stdout channel.",
    )
    stdin: bool = Field(
        default=False,
        description="Forward standard input. Otherwise the command reads end of file.",
    )
    size: Size = Size()
    env: Env = Field(default={}, description="Environment variables in addition to the session's.")
    kernel: Annotated[str, Field(max_length=64)] = Field(
        default="main1", description="Kernel of a cluster session to run in, such as sub1."
    )
    files: CopySpec | None = Field(
        default=None,
        description=(
            "Files to copy. Jobs at a site do not run commands; their runtime copies the files "
            "itself."
        ),
    )


class ExecEnd(BaseModel):
    """End of a command. ``exit_code``: negative for a signal, None if unknown. ``detail``: the
    cause."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    exit_code: int | None = None
    code: str = ""
    detail: str = ""
    next_step: str = ""


def frame(channel: Channel, data: bytes = b"") -> bytes:
    """Prefix data with its channel byte."""
    return bytes((channel,)) + data


def unframe(message: bytes) -> tuple[Channel, bytes]:
    """Split a message into channel and data. Raises ``ValueError`` if it has no valid channel."""
    if not message:
        raise ValueError("the message is empty, so it has no channel")
    return Channel(message[0]), message[1:]
