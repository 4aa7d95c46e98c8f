"""Types of specification fields."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model.errors import MoorageError
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.slots import parse_slots

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_env(value: dict[str, str]) -> dict[str, str]:
    """Check names and values of environment variables. Raises ``ValueError``."""
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
