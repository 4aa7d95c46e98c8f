"""Types of specification fields."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model.errors import MoorageError
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.slots import parse_slots

# Linux: MAX_ARG_STRLEN, for NAME=VALUE with its final NUL.
_MAX_VARIABLE_BYTES = 131_072
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

        size = len(text.encode(errors="surrogatepass"))
        total += size
        allowed = _MAX_VARIABLE_BYTES - len(f"{name}=\0")
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


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]


# Wider than the OCI grammar for image references; the container engine decides.
Image = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$", max_length=512)
]
