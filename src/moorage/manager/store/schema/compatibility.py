"""Compatibility of a schema with managers of earlier releases.

The database stores it, because an earlier release cannot know later schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moorage.common.model.errors import InvalidInput
from moorage.manager.store.database.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alembic.script import Script
    from sqlalchemy import Connection


# A number up to 0081, and after that a time, YYYYMMDDhhmm. Sorted as text, they are in the order of
# the migrations.
_SCHEMA = re.compile(r"[0-9]{4}|[0-9]{12}")


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Both are schemas. A manager does not start if its release's newest schema is older than the
    first, and does not begin to lead if it is older than the second."""

    compatible_since: str
    leads_since: str


def may_start(found: str, newest: str, compatibility: Compatibility | None) -> bool:
    """Whether a manager whose newest schema is ``newest`` works with the schema ``found``, which is
    unknown to it."""
    return (
        compatibility is not None
        and found.isdigit()
        and found > newest
        and compatibility.compatible_since <= newest
    )


def declared(scripts: Iterable[Script], revision: str) -> str:
    """``compatible_since`` of the newest migration up to ``revision`` that declares it; empty if
    none does."""
    found = [
        (script.revision, str(script.module.compatible_since))
        for script in scripts
        if script.revision <= revision and hasattr(script.module, "compatible_since")
    ]
    return max(found, default=("", ""))[1]


def read(connection: Connection) -> Compatibility | None:
    """Read the compatibility. None for a schema that does not record it."""
    if connection.exec_driver_sql("SELECT to_regclass('schema_compatibility')").scalar() is None:
        return None
    row = connection.exec_driver_sql(SQL["compatibility_find"]).one_or_none()
    return None if row is None else Compatibility(row.compatible_since, row.leads_since)


def write(connection: Connection, compatibility: Compatibility) -> None:
    values = compatibility.compatible_since, compatibility.leads_since
    connection.exec_driver_sql(SQL["compatibility_put"], values)


def let_lead(connection: Connection, since: str | None) -> Compatibility:
    """Allow managers that know the schema ``since`` to begin to lead; None allows all that may
    start.

    Raises ``InvalidInput`` for an invalid schema, or one newer than the database's."""
    current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    found = read(connection)
    if found is None or current is None:
        raise InvalidInput(
            "the schema of this database does not record which managers may lead",
            next_step="run `moorage db upgrade` first",
        )

    wanted = found.compatible_since if since is None else since
    if not (_SCHEMA.fullmatch(wanted) and wanted <= current):
        raise InvalidInput(
            f"--since is {wanted!r}; allowed: a schema up to {current}",
            next_step=(
                "omit it, or use one from `moorage upgrade plan` of the release that is to lead"
            ),
        )

    connection.exec_driver_sql(SQL["leads_since_put"], (wanted,))
    return Compatibility(found.compatible_since, wanted)
