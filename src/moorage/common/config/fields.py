"""Types of settings that several sections share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from moorage.common.model.addresses import split_address


def _check_address(value: str) -> str:
    split_address(value)
    return value


Address = Annotated[str, AfterValidator(_check_address)]
