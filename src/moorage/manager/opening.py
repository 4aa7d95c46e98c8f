"""Opens the manager's database: the configured or an embedded one, with this version's schema."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import ManagerSettings
from moorage.common.telemetry import TraceSink
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.connector import DatabaseConnector
from moorage.manager.store.database.lineage import LineageGuard


async def open_store(
    settings: ManagerSettings,
    home: Path,
    clock: Clock,
    stack: AsyncExitStack,
    *,
    tracer: TraceSink | None,
) -> tuple[Store, LineageGuard]:
    """Open the store, enter it on ``stack``, and return it along with the guard of its connections.
    ``tracer`` traces starts."""
    dsn = settings.dsn
    if dsn is None:
        embedded = EmbeddedPostgres(
            home / "postgres", bin_dir=settings.postgres_bin, port=None, clock=clock
        )
        dsn = (await stack.enter_async_context(embedded)).manager_dsn

    await migrate(dsn)
    guard = LineageGuard(home / "database-lineage")
    connector = DatabaseConnector(
        dsn,
        guard=guard,
        synchronous_commit=settings.database_synchronous_commit,
        target_session_attrs=settings.database_target_session_attrs,
    )
    store = Store(
        dsn,
        clock,
        lost_grace_s=settings.lost_grace_s,
        outputs_kept_s=settings.outputs_kept_days * 86_400,
        keep_unknown_kernels=settings.unknown_kernels == "keep",
        keyring=Keyring(settings.secrets_key_file or home / "secrets-keys", clock),
        connector=connector,
        tracer=tracer,
    )
    await stack.enter_async_context(store)
    await store.secrets.check_keys()

    return store, guard
