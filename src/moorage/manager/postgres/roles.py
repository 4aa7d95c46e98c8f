"""Roles of the embedded Postgres: a superuser for administration, and the manager's role.

The manager owns the database and everything in it, but is not a superuser: a Postgres superuser can
read and write its user's files, and run programs. In databases of earlier releases, the manager was
the superuser; ``prepare_manager_role`` makes the new role the owner of everything in them. It is
idempotent and runs at every start, because a manager of the previous release may have run in
between.
"""

from __future__ import annotations

from pathlib import Path

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.manager.postgres.binaries import write_private

SUPERUSER = "moorage"
MANAGER = "moorage_manager"
_PREPARE = f"""
DO $do$ DECLARE statement text; BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{MANAGER}') THEN
        CREATE ROLE {MANAGER};
    END IF;
    EXECUTE format('ALTER DATABASE %I OWNER TO {MANAGER}', current_database());
    FOR statement IN
        SELECT format('ALTER SCHEMA %I OWNER TO {MANAGER}', nspname)
        FROM pg_namespace WHERE nspname = 'public' AND nspowner = '{SUPERUSER}'::regrole
        UNION ALL
        SELECT format('ALTER TABLE %s OWNER TO {MANAGER}', oid::regclass)
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
          AND relowner = '{SUPERUSER}'::regrole
        UNION ALL
        SELECT format('ALTER SEQUENCE %s OWNER TO {MANAGER}', c.oid::regclass)
        FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
          AND relowner = '{SUPERUSER}'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO {MANAGER}', p.oid::regprocedure)
        FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND proowner = '{SUPERUSER}'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO {MANAGER}', oid::regtype)
        FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype IN ('e', 'd')
          AND typowner = '{SUPERUSER}'::regrole
    LOOP EXECUTE statement; END LOOP;
END $do$;
"""


async def prepare_manager_role(superuser_dsn: str, password: str) -> None:
    """Create the role if needed, and make it the owner of the database and all its contents."""
    # Startup must never wait for a standby.
    connection = await asyncpg.connect(
        superuser_dsn, server_settings={"synchronous_commit": "local"}
    )
    try:
        async with connection.transaction():
            await connection.execute(_PREPARE)
            # Passwords come from ``Clock.secret`` and contain no quotes.
            await connection.execute(f"ALTER ROLE {MANAGER} LOGIN PASSWORD '{password}'")
    finally:
        await connection.close()


def load_password(path: Path, clock: Clock) -> str:
    """The password in ``path``, generated on first use."""
    if not path.exists():
        partial = path.with_suffix(".new")
        write_private(partial, clock.secret())
        partial.rename(path)
    return path.read_text()
