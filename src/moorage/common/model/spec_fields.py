"""Types of specification fields."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model.errors import MoorageError
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.slots import parse_slots

# Linux: MAX_ARG_STRLEN, for an argument or NAME=VALUE with its final NUL.
_MAX_STRING_BYTES = 131_072
# Linux takes 2 MiB for variables, command and their pointers, if the stack may grow to 8 MiB.
_MAX_ENV_BYTES = 1_048_576
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_env(value: dict[str, str]) -> dict[str, str]:
    """Check names and values of environment variables. Raises ``ValueError``."""
    total = 0
    for name, text in value.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not an environment variable name")

        if name == PROGRESS_FROM:
            if text != "log":
                raise ValueError(f"{name} is {text[:40]!r}: only 'log' is allowed")
        elif name.startswith("MOORAGE_"):
            raise ValueError(
                f"{name!r} is reserved: the agent sets variables that start with MOORAGE_"
            )

        if "\0" in text:
            raise ValueError(f"the value of {name!r} contains a NUL character")

        size = byte_size(text)
        total += size
        allowed = _MAX_STRING_BYTES - len(f"{name}=\0")
        if allowed < 0:
            raise ValueError(
                f"the name {name[:40]!r}… has {len(name):,} bytes, and Linux takes "
                f"{_MAX_STRING_BYTES - len('=' + chr(0)):,} for a name with its value"
            )

        if size > allowed:
            raise ValueError(
                f"the value of {name[:100]!r} has {size:,} bytes, and Linux takes {allowed:,}; "
                "pass it in a file"
            )

    if total > _MAX_ENV_BYTES:
        raise ValueError(
            f"the values have {total:,} bytes in all; at most {_MAX_ENV_BYTES:,} are allowed; "
            "pass large ones in a file"
        )

    return value


def byte_size(text: str) -> int:
    """The size of a text in UTF-8. Limits of Linux are in bytes, and a character has up to four."""
    return len(text.encode(errors="surrogatepass"))


def most_bytes(limit: int) -> AfterValidator:
    """A validator for texts of at most ``limit`` bytes in UTF-8."""

    def check(text: str) -> str:
        if (size := byte_size(text)) > limit:
            raise ValueError(f"the text has {size:,} bytes; at most {limit:,} are allowed")
        return text

    return AfterValidator(check)


def _check_argument(word: str) -> str:
    allowed = _MAX_STRING_BYTES - len("\0")
    if (size := byte_size(word)) > allowed:
        raise ValueError(
            f"the argument has {size:,} bytes, and Linux takes {allowed:,}; pass it in a file"
        )
    return word


def _check_slots(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(
            "resources must be an object such as {'cpu': 2, 'mem': '4GiB', 'cuda.device': 1}"
        )
    try:
        parse_slots(value)
    except MoorageError as error:
        raise ValueError(str(error)) from None
    return value


Env = Annotated[dict[str, str], AfterValidator(check_env)]
Resources = Annotated[dict[str, str | int | float], BeforeValidator(_check_slots)]
NoNul = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=32_768)]
# One word of a command.
Argument = Annotated[str, Field(pattern=r"^[^\x00]*$"), AfterValidator(_check_argument)]
# A path as Linux takes it: PATH_MAX without the final NUL.
Path = Annotated[str, Field(pattern=r"^[^\x00]*$"), most_bytes(4095)]


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]


# Wider than the OCI grammar for image references; the container engine decides.
Image = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$", max_length=512)
]
