"""Fixtures that several kinds of tests share."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from moorage.common.aio.clock import SystemClock
from moorage.common.aio.gc import freeze_startup_objects
from tests import (
    addresses,  # noqa: F401 - before the workers are started: they have the lane of this run
    lost_workers,
)
from tests.databases import DatabaseServer, connected, database_at, execute, trust_local_connections
from tests.examples import load_profile

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from tests.containers.engine import PrivateEngine
    from tests.e2e.harness import Platform
    from tests.e2e.shared import SharedPlatform
    from tests.hpc.slurm import SlurmCluster

gc.disable()  # frozen until the cases are collected, since none of this is garbage
load_profile()  # before the tests are imported: their settings start with it
# Plain tracebacks, as daemons have them: when several loops fail at once, pretty ones with all
# variables block the event loop for seconds, and with it a manager that runs in the test's own
# process.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=True),
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)
# The machine may be busy, so the duration of an example says nothing about the code.
settings.register_profile("moorage", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moorage")
# nohup and `&` in a shell without job control ignore these signals, and every program that a test
# starts would inherit that.
for number, handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
# Tests need no durability across a power cut. Autovacuum visits the databases at arbitrary times,
# and the pages that a statement reads depend on whether it has run.
FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "100",
}
# More than the databases of all workers need.
DATABASES_BYTES = 4 * 1024**3


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return lost_workers.make_scheduler(config, log)


def pytest_collection_finish() -> None:
    """Garbage is looked for among the objects that the cases create, not each time in all modules
    and all cases."""
    gc.enable()
    freeze_startup_objects()


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Restores the logging setup, because a test may run a command in its own process, which
    changes it."""
    config = structlog.get_config()
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    yield

    if structlog.get_config() != config:
        structlog.configure(**config)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)


@pytest.fixture(scope="session")
def reachable_dir() -> Iterator[Path]:
    """A directory that any user can traverse: pytest's own are private, and Postgres does not run
    as root."""
    path = Path(tempfile.mkdtemp(prefix="moorage-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def slurm_cluster(reachable_dir: Path) -> Iterator[SlurmCluster]:
    """A private Slurm of one node (make test-slurm installs it)."""
    from tests.hpc.slurm import SlurmCluster

    root = reachable_dir / "slurm"
    root.mkdir()
    cluster = SlurmCluster(root)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def home(reachable_dir: Path) -> Iterator[Path]:
    """A state directory for a whole Moorage, removed after the test with the database in it: if the
    directory were private and root started Moorage, the database would be created (and left) below
    /var/lib."""
    path = reachable_dir / f"home-{SystemClock().new_id()}"
    path.mkdir(mode=0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def shared_platform(reachable_dir: Path) -> Iterator[SharedPlatform]:
    from tests.e2e.shared import SharedPlatform

    shared = SharedPlatform(reachable_dir)
    yield shared
    shared.close()


@pytest_asyncio.fixture
async def one_node(shared_platform: SharedPlatform) -> AsyncIterator[Platform]:
    """A running ``moorage up``, which a worker shares among all tests that kill no daemon and need
    no settings."""
    async with shared_platform.lend() as platform:
        yield platform


@pytest.fixture(scope="session")
def docker_engine(reachable_dir: Path) -> Iterator[PrivateEngine]:
    """A private Docker Engine with ``images.PYTHON_IMAGE``, which believes that it can provide
    GPUs."""
    from tests.containers.engine import PrivateEngine, missing_requirement
    from tests.containers.images import import_python

    if reason := missing_requirement():
        pytest.skip(reason)

    engine = PrivateEngine(reachable_dir, gpus=True, live_restore=True)
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def database_dir(reachable_dir: Path) -> Iterator[Path]:
    """In memory if there is room: creating and dropping a database takes a quarter of the CPU time
    there."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < DATABASES_BYTES:
        yield reachable_dir
        return

    path = Path(tempfile.mkdtemp(prefix="moorage-test-", dir=memory))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_dsn(database_dir: Path) -> AsyncIterator[str]:
    """A real Postgres for the whole test run, without durability. For databases in it, see
    ``empty_database``."""
    # Imported here and not above, because tests of the other components do not import the manager.
    from moorage.manager.postgres import EmbeddedPostgres

    async with EmbeddedPostgres(
        database_dir / "pg", clock=SystemClock(), extra=FORGETFUL
    ) as postgres:
        await trust_local_connections(postgres.dsn)
        yield postgres.dsn


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stopped_postgres(database_dir: Path) -> Path:
    """The directory of an embedded Postgres that has already run once, for ``copied_postgres``."""
    from moorage.manager.postgres import EmbeddedPostgres

    path = database_dir / "stopped-pg"
    async with EmbeddedPostgres(path, clock=SystemClock(), extra=FORGETFUL):
        pass
    (path / "port").unlink()  # each copy has its own
    return path


# Its databases are created in the connection's event loop, whichever loop the test has.
@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database_server(postgres_dsn: str) -> AsyncIterator[DatabaseServer]:
    async with connected(postgres_dsn) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template(postgres_dsn: str) -> str:
    """Name of a migrated database that ``migrated_database`` copies: a copy takes a tenth of the
    time of a migration."""
    from moorage.manager.store import migrate

    await execute(postgres_dsn, "CREATE DATABASE migrated")
    await migrate(database_at(postgres_dsn, "migrated"))
    return "migrated"


@pytest_asyncio.fixture(loop_scope="session")
async def empty_database(database_server: DatabaseServer) -> AsyncIterator[str]:
    """The DSN of a fresh, empty database, dropped after the test."""
    async with database_server.new_database() as dsn:
        yield dsn


@pytest_asyncio.fixture(loop_scope="session")
async def migrated_database(
    database_server: DatabaseServer, migrated_template: str
) -> AsyncIterator[str]:
    """The DSN of a fresh, migrated database, dropped after the test."""
    async with database_server.new_database(migrated_template) as dsn:
        yield dsn
