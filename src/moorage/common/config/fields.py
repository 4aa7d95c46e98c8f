"""Setting types that several sections share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from moorage.common.model.addresses import split_address
from moorage.common.model.errors import InvalidInput
from moorage.common.model.inventory_choice import parse_inventory
from moorage.common.model.slots import parse_size


def _check_address(value: str) -> str:
    split_address(value)
    return value


def _check_inventory(value: str) -> str:
    try:
        parse_inventory(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


def _check_size(value: str) -> str:
    try:
        parse_size(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


Inventory = Annotated[str, AfterValidator(_check_inventory)]
Size = Annotated[str, AfterValidator(_check_size)]
Address = Annotated[str, AfterValidator(_check_address)]
