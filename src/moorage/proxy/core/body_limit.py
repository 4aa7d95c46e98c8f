"""Limits on the size of a request's body: the proxy's, the key's and the endpoint's. Pure.

The smallest one applies. The limits of the proxy and the key follow from the head of a request. The
endpoint's follows from the model, which the head contains (in the address, or because the key may
use few models), or the beginning of the body, or only the complete body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moorage.common.link.messages import KeyGrant, ModelRoute
from moorage.proxy.core.body_reader import BodyReader, TooIntricate
from moorage.proxy.core.forms import text_spans

OF_PROXY: Final = "proxy"
OF_KEY: Final = "key"
OF_ENDPOINT: Final = "endpoint"
_MODEL: Final = frozenset({"model"})
_PIECE_BYTES: Final = 16_384
_MOST_STEPS: Final = 1000


class BodyLimit:
    """The largest ``size`` of a body, in bytes, and whose limit it is: ``source``. ``endpoint``:
    the endpoint's name, empty for other sources."""

    __slots__ = ("endpoint", "size", "source")

    def __init__(self, size: int, source: str = OF_PROXY, endpoint: str = "") -> None:
        self.size = size
        self.source = source
        self.endpoint = endpoint


def limit_of_head(most: int, key: KeyGrant | None) -> BodyLimit:
    """The limit that is known from the head. ``most``: the proxy's own."""
    if key is not None and 0 < key.max_body_bytes < most:
        return BodyLimit(key.max_body_bytes, OF_KEY)
    return BodyLimit(most)


def limit_of_route(route: ModelRoute | None) -> BodyLimit | None:
    """The limit of a model's endpoint, if it has one."""
    if route is None or not route.max_body_bytes:
        return None
    return BodyLimit(route.max_body_bytes, OF_ENDPOINT, route.endpoint)


def limit_of_any(routes: Sequence[ModelRoute | None]) -> BodyLimit | None:
    """The largest limit among the only models that a key may use; None if one has no limit."""
    limits = [limit_of_route(route) for route in routes]
    found = [limit for limit in limits if limit is not None]
    return max(found, key=_size) if found and len(found) == len(limits) else None


def _size(limit: BodyLimit) -> int:
    return limit.size


def model_in_beginning(begin: bytes, content_type: str) -> str:
    """The model's name in the first bytes of a body; empty if it is not there. ``content_type``: of
    a form, otherwise empty. Errors are left to the reading of the complete body."""
    try:
        if content_type:
            return _first_field(begin, content_type)

        found = _first_members(begin).get("model")
    except (ValueError, RecursionError, TooIntricate):
        return ""

    return found if isinstance(found, str) else ""


def _first_members(begin: bytes) -> Mapping[str, object]:
    reader = BodyReader(_MODEL, _MOST_STEPS)
    for at in range(0, len(begin), _PIECE_BYTES):
        reader.feed(begin[at : at + _PIECE_BYTES])
        if reader.members:
            break
    return reader.members


def _first_field(begin: bytes, content_type: str) -> str:
    for span in text_spans(begin, content_type):
        if span is not None and span[0] == "model":
            return begin[span[1] : span[2]].decode()
    return ""
