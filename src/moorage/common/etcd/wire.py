"""Messages of etcd's v3 JSON gateway. Pure.

Keys and values are base64, 64-bit numbers are strings, and fields that are zero or empty are
absent. Source: etcd's ``rpc.proto`` as its gateway maps it, tested with etcd 3.4.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Text of a key or value. Bytes that are not UTF-8 are replaced; Moorage never writes any."""
    return b64decode(text).decode(errors="replace")


def range_end(prefix: str) -> str:
    """The first key after all keys that begin with ``prefix``, encoded. Prefixes end in ASCII."""
    return encoded(prefix[:-1] + chr(ord(prefix[-1]) + 1))


def prefix_request(prefix: str) -> dict[str, Any]:
    return {"key": encoded(prefix), "range_end": range_end(prefix)}


@dataclass(frozen=True, slots=True)
class KeyValue:
    """``modified``: revision of the last change. ``version``: number of writes since the key was
    created."""

    value: str
    modified: int
    version: int


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """All keys of a prefix at the store's ``revision``."""

    revision: int
    entries: Mapping[str, KeyValue]


def read_snapshot(reply: Mapping[str, Any]) -> KeySnapshot:
    entries = {
        decoded(kv["key"]): KeyValue(
            decoded(kv.get("value", "")), int(kv.get("mod_revision", 0)), int(kv.get("version", 0))
        )
        for kv in reply.get("kvs", ())
    }
    return KeySnapshot(int(reply.get("header", {}).get("revision", 0)), entries)


# -- transactions ----------------------------------------------------------------------------------


def unchanged(key: str, modified: int) -> dict[str, Any]:
    """Condition that ``key`` was last changed at revision ``modified``; 0 means that it does not
    exist."""
    return {"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(modified)}


def put_operation(key: str, value: str) -> dict[str, Any]:
    return {"request_put": {"key": encoded(key), "value": encoded(value)}}


def delete_operation(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": encoded(key)}}


def transaction(
    compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {"compare": list(compare), "success": list(success)}


# -- watches ---------------------------------------------------------------------------------------


def watch_request(prefix: str, start_revision: int) -> dict[str, Any]:
    return {"create_request": {**prefix_request(prefix), "start_revision": str(start_revision)}}


def is_change(message: Mapping[str, Any]) -> bool:
    return bool(message.get("result", {}).get("events"))


def is_canceled(message: Mapping[str, Any]) -> bool:
    """Whether the watch has ended: its start revision was compacted, or access to it was
    revoked."""
    return bool(message.get("result", {}).get("canceled")) or "error" in message
