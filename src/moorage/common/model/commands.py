"""Commands run inside sessions: what is asked for, and how bytes are told apart on the way (decision 12).

On the WebSocket every binary message is one byte for the channel and then its bytes, as in the channels of
Kubernetes' remotecommand v5; the first message of all is an ``ExecSpec`` as text.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.spec import Env, Model, NoNul

PROTOCOL = "exec.v1.moorage"
MESSAGE_MAX = 1024 * 1024
PIECE = 32 * 1024


class Channel(IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3  # the last message: an ExecEnd
    RESIZE = 4  # a Size
    CLOSE = 255  # of one channel, whose number follows: only stdin can be closed


Lines = Annotated[int, Field(ge=0, le=65_535)]


class Size(Model):
    """Of a terminal, in characters; 0: not known."""

    rows: Lines = 0
    cols: Lines = 0


class ExecSpec(Model):
    """A command to run in a session."""

    command: Annotated[list[NoNul], Field(min_length=1, max_length=4096)] = Field(
        description="Program and arguments; no shell is put in between."
    )
    tty: bool = Field(False, description="With a terminal; then all output is on the channel of stdout.")
    stdin: bool = Field(False, description="It gets input; else its stdin is at its end.")
    size: Size = Size()
    env: Env = Field({}, description="Beside the session's own.")
    kernel: Annotated[str, Field(max_length=64)] = Field(
        "main1", description="In a cluster: in this kernel, like sub1."
    )


class ExecEnd(BaseModel):
    """How it ended. ``exit_code`` is negative for a signal, None if it is not known: ``detail`` says why."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    exit_code: int | None = None
    code: str = ""
    detail: str = ""
    next_step: str = ""


def frame(channel: Channel, data: bytes = b"") -> bytes:
    return bytes((channel,)) + data


def unframe(message: bytes) -> tuple[Channel, bytes]:
    """Raises ``ValueError`` for a message that is empty or of no channel."""
    if not message:
        raise ValueError("an empty message belongs to no channel")
    return Channel(message[0]), message[1:]
