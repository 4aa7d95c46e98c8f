"""Pagination cursors: opaque strings that name the last item of a page."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

from moorage.common.model.errors import InvalidInput
from moorage.manager.store.rows import as_uuid


def make_time_cursor(created_at: datetime, item_id: str) -> str:
    """For lists ordered by creation time, then id."""
    plain = f"{created_at.isoformat()}|{item_id}"
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def read_time_cursor(cursor: str) -> tuple[datetime, str]:
    """Raises ``InvalidInput``."""
    try:
        plain = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        timestamp, _, item_id = plain.partition("|")
        created_at = datetime.fromisoformat(timestamp)
    except (ValueError, binascii.Error) as error:
        raise invalid_cursor(cursor) from error
    if as_uuid(item_id) is None or created_at.tzinfo is None:
        raise invalid_cursor(cursor)
    return created_at, item_id


def read_number_cursor(cursor: str) -> int:
    """For lists ordered by a bigint key. Raises ``InvalidInput``."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise invalid_cursor(cursor)
    return int(cursor)


def read_id_cursor(cursor: str) -> str:
    """For lists ordered by a UUID. Raises ``InvalidInput``."""
    if (item_id := as_uuid(cursor)) is None:
        raise invalid_cursor(cursor)
    return item_id


def invalid_cursor(cursor: str) -> InvalidInput:
    return InvalidInput(
        f"cursor {cursor[:40]!r} is not valid",
        next_step="pass the `next` of the page before, unchanged",
    )
