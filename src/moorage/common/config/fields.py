"""Setting types that several sections share."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

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


def _check_origin(value: str) -> str:
    """An origin as browsers send it, in lower case."""
    if value == "*":
        return value

    origin = value.lower()
    try:
        parts = urlsplit(origin)
        is_origin = origin == f"{parts.scheme}://{parts.netloc}" and bool(parts.hostname)
        has_default_port = (parts.scheme, parts.port) in (("http", 80), ("https", 443))
    except ValueError:
        is_origin = has_default_port = False

    if not is_origin or has_default_port or "@" in origin or "*" in origin or not origin.isascii():
        raise ValueError(
            f"{value!r} is not an origin: write it as browsers send it, such as "
            "https://chat.example.com or http://localhost:3000, without a path or the default "
            "port, or * for every origin"
        )

    return origin


Inventory = Annotated[str, AfterValidator(_check_inventory)]
Size = Annotated[str, AfterValidator(_check_size)]
Address = Annotated[str, AfterValidator(_check_address)]
Origin = Annotated[str, AfterValidator(_check_origin)]
