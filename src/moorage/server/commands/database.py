"""Commands that administer the database: ``moorage db``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli.app import VerbGroup, app
from moorage.common.model.errors import Conflict
from moorage.server.bootstrap import Bootstrap, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    Flag,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
    print_data,
    run_and_exit,
)
from moorage.server.process import needs_extra

db = typer.Typer(cls=VerbGroup, no_args_is_help=True)
app.add_typer(db, name="db", help="Back up, restore, upgrade and check the database.")

Dsn = Annotated[str | None, typer.Option(help="The Postgres to use. Default: the embedded one.")]
# Files that a database backup does not contain, and their purpose.
_LEFT_OUT = (
    (
        "ca-secret",
        "manager",
        "decrypts the CA key; without it every agent and proxy must join again",
    ),
    ("secrets-keys", "manager", "decrypts stored secrets; without it they must be set again"),
    ("link-token", "manager", "admits agents and proxies on links without TLS"),
    ("admin-key", "manager", "the first API key in plain text; the database has only its hash"),
    ("moorage.toml", "each host", "settings"),
    ("agent-ID", "each node", "identity and checkpoint of the agent, logs, workspaces"),
)


def _boot(
    config: Path | None, home: Path | None, sets: list[str] | None, dsn: str | None
) -> Bootstrap:
    return bootstrap(load_settings(config, home, sets, Flag("--dsn", "manager.dsn", dsn)))


@db.command("backup")
def db_backup(
    file: Annotated[Path, typer.Argument(help="The file to write. It must not exist.")],
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    output: OutputFormat = "table",
) -> None:
    """Write the database to a file. Managers may keep running.

    The backup contains sessions, endpoints, agents, keys, quotas and the certificate authority of
    the links, whose key is encrypted. The output ends with a list of files that it does not
    contain.

    \b
    Examples:
      moorage db backup /backups/moorage-$(date +%F).dump
    """
    check_output_format(output)
    boot = _boot(config, home, sets, dsn)

    with needs_extra("manager"):
        from moorage.manager.postgres import backup
        from moorage.manager.postgres.clients import client_programs
        from moorage.manager.store.database.state import database_state
        from moorage.manager.store.platform.backups import record_backup

    async def main() -> int:
        async with database_of(boot) as url:
            programs = await client_programs(
                url, (await database_state(url)).major, boot.loaded.settings.manager.postgres_bin
            )
            size = await backup.dump(programs, file)
            await record_backup(url, file, size)
        _print_backup(file, size, output)
        return 0

    run_and_exit(main())


def _print_backup(file: Path, size: int, output: str) -> None:
    if output != "table":
        left_out = [dict(zip(("name", "host", "purpose"), row, strict=True)) for row in _LEFT_OUT]
        print_data({"file": str(file), "bytes": size, "left_out": left_out}, output)
        return
    print(f"{file}: {size} bytes")
    print("not in it, in the state directories:")
    for name, host, purpose in _LEFT_OUT:
        print(f"  {name:<21} {host:<10} {purpose}")


@db.command("restore")
def db_restore(
    file: Annotated[Path, typer.Argument(help="A file that `moorage db backup` wrote.")],
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace everything in a database that is not empty."),
    ] = False,
) -> None:
    """Restore a backup, and prepare it for use. Stop every manager first.

    The database must be empty unless --overwrite is given. A restore that fails changes nothing.
    Agents and proxies keep running: kernels that the backup knows are adopted, others are listed by
    `moorage db check` and `moorage agents describe`; `manager.unknown_kernels` decides whether they
    are kept. Keys, quotas and cordons are those of the backup: keys that were revoked since are
    valid again.

    \b
    Examples:
      moorage db restore /backups/moorage-2030-01-31.dump
      moorage db restore --overwrite --dsn postgresql://moorage@db/moorage moorage.dump
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.postgres import backup
        from moorage.manager.postgres.clients import client_programs
        from moorage.manager.store.database.state import database_state
        from moorage.manager.store.platform import restored
        from moorage.manager.store.schema.migrate import UNPREPARED, check_revision
        from moorage.manager.store.schema.pending_migrations import known_tables

    async def main() -> int:
        async with database_of(boot, stopped=True) as url:
            state = await database_state(url)
            programs = await client_programs(
                url, state.major, boot.loaded.settings.manager.postgres_bin
            )
            archive = await backup.inspect(programs, file)
            check_revision(archive.revision)
            backup.check_target(state.tables, state.clients, known_tables(), overwrite=overwrite)
            await backup.load(programs, archive, unprepared=UNPREPARED)

            try:
                found = await restored.prepare_restored(url)
            except BaseException:
                if not state.tables:
                    await backup.clear(programs)
                raise

        print(f"restored the state of {archive.taken_at}")
        _print_restored(found, boot)
        return 0

    run_and_exit(main())


@db.command("verify")
def db_verify(
    file: Annotated[Path, typer.Argument(help="A file that `moorage db backup` wrote.")],
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
) -> None:
    """Test a backup: restore it into a temporary Postgres, and run the integrity checks there.

    Managers may keep running. The database records the test for `moorage doctor --cluster`. The
    exit code is 1 if the checks find drift.

    \b
    Examples:
      moorage db verify /backups/moorage-2030-01-31.dump
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.store.platform.backups import record_test
        from moorage.server.backup_test import restore_temporarily

    async def main() -> int:
        found = await restore_temporarily(
            file, boot.loaded.settings.manager.postgres_bin, boot.clock
        )
        print(
            f"restored the state of {found.taken_at}: {found.sessions} sessions that have not ended"
        )
        code = _print_drifts([asdict(drift) for drift in found.drifts], "table")
        if code == 0:
            async with database_of(boot) as url:
                if not await record_test(url, file, found.size):
                    print(
                        "note: this backup was not taken from this database, which therefore does "
                        "not record the test"
                    )

        return code

    run_and_exit(main())


@db.command("recover")
def db_recover(
    config: ConfigFile = None, home: HomeDir = None, sets: Overrides = None, dsn: Dsn = None
) -> None:
    """Prepare a database that was restored by other means for use. Stop every manager first.

    This is for point-in-time recovery, a snapshot of the volume, or a promoted standby that had not
    received every commit. `moorage db restore` does it automatically.
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.postgres import backup
        from moorage.manager.store.database.state import database_state
        from moorage.manager.store.platform import restored

    async def main() -> int:
        async with database_of(boot, stopped=True) as url:
            backup.check_unused((await database_state(url)).clients)
            found = await restored.prepare_restored(url)
        _print_restored(found, boot)
        return 0

    run_and_exit(main())


def _print_restored(found: Any, boot: Bootstrap) -> None:
    print(f"sessions that have not ended: {found.sessions}")
    print(f"agents that must report before they get new work: {found.agents}")
    secret = boot.home / "ca-secret"
    if boot.loaded.settings.manager.ca_secret is None and not secret.exists():
        print(
            f"note: there is no {secret}. If the links have TLS, copy it from the previous "
            "manager first."
        )

    print(
        "next: start the managers; `moorage db check` lists kernels of agents that the backup does "
        "not know"
    )


@db.command("upgrade")
def db_upgrade(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
) -> None:
    """Upgrade the schema to this version. The manager also does this at start.

    This also ends the effect of `moorage db downgrade`.
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.store import migrate
        from moorage.manager.store.schema.compatibility import let_lead
        from moorage.manager.store.schema.migrate import in_transaction, newest_revision

    async def main() -> int:
        known = newest_revision()
        async with database_of(boot) as url:
            if newer := await migrate(url):
                print(
                    f"the schema is {newer}, newer than {known} of this release, which can use it"
                )
                return 0

            await in_transaction(url, lambda connection: let_lead(connection, known))

        print("the schema is up to date")
        return 0

    run_and_exit(main())


@db.command("downgrade")
def db_downgrade(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEMA",
            help="The oldest schema whose managers may lead. Default: all managers that can start.",
        ),
    ] = None,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
) -> None:
    """Let managers of an earlier release lead again. The schema stays as it is.

    After an upgrade of the schema, only managers that know it can become leader. Run this command
    from either release before you return to the previous release. `moorage db upgrade` of the newer
    release ends its effect.

    \b
    Examples:
      moorage db downgrade
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.store.schema.compatibility import let_lead
        from moorage.manager.store.schema.migrate import in_transaction

    async def main() -> int:
        async with database_of(boot) as url:
            found = await in_transaction(url, lambda connection: let_lead(connection, since))
        print(f"managers that know schema {found.leads_since} may lead")
        if found.leads_since < found.compatible_since:
            print(
                f"managers that do not know {found.compatible_since} keep running, but cannot "
                "start again"
            )
        return 0

    run_and_exit(main())


@db.command("rotate-secrets-key")
def db_rotate_secrets_key(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    add_only: Annotated[
        bool,
        typer.Option(
            "--add-only", help="Add a new key to the file without encrypting anything with it."
        ),
    ] = False,
    keep_old: Annotated[
        bool, typer.Option("--keep-old", help="Keep the old keys in the file, to read old backups.")
    ] = False,
    discard_unreadable: Annotated[
        bool, typer.Option("--discard-unreadable", help="Delete secrets whose key is lost.")
    ] = False,
) -> None:
    """Encrypt all stored secrets with a new key. Managers may keep running.

    With managers on several hosts, run it with --add-only on one host, copy the file secrets-keys
    to the others, then run it without the option. It encrypts with the newest key of the file, and
    creates a new key if all secrets are already encrypted with the newest.

    \b
    Examples:
      moorage db rotate-secrets-key
      moorage db rotate-secrets-key --discard-unreadable
    """
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.secrets import Keyring
        from moorage.manager.store import Store

    async def main() -> int:
        path = boot.loaded.settings.manager.secrets_key_file or boot.home / "secrets-keys"
        keyring = Keyring(path, boot.clock)
        async with database_of(boot) as url, Store(url, boot.clock, keyring=keyring) as store:
            if add_only or await store.secrets.use_newest_key():
                keyring.add_key()
            if add_only:
                print(f"{path}: new key {keyring.ids()[0]}; copy the file to every manager")
                return 0

            resealed, lost = await store.secrets.reseal(discard_unreadable=discard_unreadable)

        if not keep_old:
            keyring.keep_newest()

        print(f"{resealed} secrets are encrypted with {keyring.ids()[0]}, in {path}")
        for name in lost:
            print(f"deleted, because its key is lost: {name}")

        return 0

    run_and_exit(main())


@db.command("check")
def db_check(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Recompute derived rows that drifted.")
    ] = False,
    output: OutputFormat = "table",
) -> None:
    """Run the integrity checks. The exit code is 1 if drift remains. Managers may keep running."""
    check_output_format(output)
    boot = _boot(config, home, sets, dsn)
    with needs_extra("manager"):
        from moorage.manager.store import Store

    async def main() -> int:
        async with database_of(boot) as url, Store(url, boot.clock) as store:
            drifts = await (store.integrity.repair() if repair else store.integrity.check())
        return _print_drifts([asdict(drift) for drift in drifts], output)

    run_and_exit(main())


def _print_drifts(drifts: list[dict[str, Any]], output: str) -> int:
    """Print the drift and return the exit code."""
    remaining = sum(not drift["repaired"] for drift in drifts)
    if output != "table":
        print_data(drifts, output)
        return 1 if remaining else 0

    for drift in drifts:
        state = "repaired" if drift["repaired"] else "drift"
        print(f"{state:<8} {drift['check']:<9} {drift['subject'].strip()}: {drift['detail']}")
    for check, meaning in sorted({(drift["check"], drift["means"]) for drift in drifts}):
        print(f"{'':<8} {check:<9} = {meaning}")

    found = f"{len(drifts)} found, {len(drifts) - remaining} repaired"
    print(found if drifts else "no drift: every check passes")
    return 1 if remaining else 0


@asynccontextmanager
async def database_of(boot: Bootstrap, *, stopped: bool = False) -> AsyncIterator[str]:
    """The configured DSN, or that of the embedded Postgres. Unless a manager is running the
    embedded Postgres, it is started for the duration of the context. ``stopped``: raise
    ``Conflict`` if a manager is running it."""
    from moorage.manager.postgres import EmbeddedPostgres, running_dsn

    settings = boot.loaded.settings.manager
    if settings.dsn is not None:
        yield settings.dsn
        return

    directory = boot.home / "postgres"
    if (running := running_dsn(directory)) is not None:
        if stopped:
            raise Conflict(
                f"a manager uses the database in {directory}",
                next_step="stop the manager, then try again",
            )

        yield running
        return

    async with EmbeddedPostgres(
        directory, bin_dir=settings.postgres_bin, clock=boot.clock
    ) as embedded:
        yield embedded.manager_dsn
