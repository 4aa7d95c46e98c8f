"""Full disks of Postgres: the API reports it, acknowledged sessions survive, and the platform
recovers on its own.

With a full data disk Postgres refuses a statement. With a full write-ahead log disk it panics, and
cannot start until there is space.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from moorage.common.model.errors import MoorageError
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Result, Status
from moorage.sdk import ApiError
from tests.e2e.harness import Platform, until

from .invariants import all_sessions, history_gap

SMALL = {"cpu": 0.1, "mem": "16MiB"}


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "moorage-test", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"SKIPPED: no full disk, as no tmpfs can be mounted here: {done.stderr.strip()}"
        )

    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def data_disk(home: Path) -> Iterator[Path]:
    """The directory of the manager's Postgres: 192 MiB, a third of which a new database uses."""
    path = home / "postgres"
    path.mkdir(mode=0o711)
    with small_disk(path, "192m"):
        yield path


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    platform = Platform(home)
    platform.env["MOORAGE_AGENT__INVENTORY"] = "fake:1xH100"
    yield platform
    platform.close()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 65_536):
            pass
    assert os.statvfs(disk).f_bavail == 0


class SessionClient:
    """Creates sessions, and records the responses."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.acknowledged: dict[str, str] = {}
        self.refused: list[ApiError] = []

    async def create(self, name: str, program: str) -> bool:
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program], resources=SMALL)
        async with self.platform.client() as client:
            try:
                self.acknowledged[(await client.sessions.create(spec)).id] = name
            except ApiError as error:
                self.refused.append(error)
                return False
            return True

    async def has(self, status: Status, *names: str) -> bool:
        async with self.platform.client() as client:
            return all([(await client.sessions.get(name)).status is status for name in names])

    async def start_sessions(self) -> None:
        """Start a session that ends at once, and one that ends while the disk is full."""
        self.platform.start("agent")
        await until("the manager accepts sessions", lambda: self.create("before", "exit 0"))
        assert await self.create("running", "sleep 5; exit 3")
        await until("the session runs", lambda: self.has(Status.RUNNING, "running"))

    async def create_until_refused(self) -> None:
        """Create sessions until they are refused repeatedly."""
        self.refused.clear()
        text = "x" * 30_000  # each needs several pages
        for n in range(3000):
            try:
                created = await self.create(f"full-{n}", f"exit 0 # {n} {text}")
            except MoorageError:
                continue  # the response was lost: neither acknowledged nor refused

            if not created and len(self.refused) > 5:
                break

        assert self.refused, "the disk was never full"
        for error in self.refused:
            assert error.status == 503, f"{error.status} {error}"
            assert error.problem.code == "store-unavailable"

    async def check_recovery(self) -> None:
        """Check the sessions after space has been freed."""
        await until("it accepts sessions again on its own", lambda: self.create("after", "exit 0"))
        await until(
            "all sessions end", lambda: self.has(Status.TERMINATED, "before", "running", "after")
        )

        async with self.platform.client() as client:
            sessions = {s.id: s for s in await all_sessions(client)}
            assert self.acknowledged.keys() <= sessions.keys(), "no acknowledged session is lost"
            running = await client.sessions.get("running")
            assert (running.result, running.kernels[0].exit_code) == (Result.FAILED, 3)

            async def complete(id_: str) -> bool:
                # Some sessions are still active, so the history may be newer than the session that
                # was read before it.
                return (
                    history_gap(await client.sessions.get(id_), await client.sessions.history(id_))
                    == ""
                )

            for id_ in sessions:
                await until(
                    f"the history of {id_} is complete", partial(complete, id_), timeout_s=20
                )


async def start_manager(platform: Platform) -> None:
    platform.start("manager")
    key = platform.home / "admin-key"
    await until("the first key exists", lambda: asyncio.to_thread(key.exists))


@pytest.mark.timeout(180)
async def test_full_data_disk_is_reported_and_survived(platform: Platform, data_disk: Path) -> None:
    client = SessionClient(platform)
    await start_manager(platform)
    await client.start_sessions()
    await asyncio.to_thread(fill, data_disk)
    await client.create_until_refused()
    assert any("disk" in str(e) and "full" in str(e) for e in client.refused), str(
        client.refused[0]
    )
    (data_disk / "filler").unlink()
    await client.check_recovery()
    platform.close()  # before its disk is unmounted


def _move_wal(data: Path, to: Path) -> None:
    """Move the write-ahead log to a separate disk, as administrators do."""
    old = data / "pg_wal"
    new = to / "pg_wal"
    owner = old.stat()
    shutil.copytree(old, new)
    for path in (new, *new.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)

    new.chmod(0o700)
    shutil.rmtree(old)
    old.symlink_to(new)


@pytest.mark.timeout(240)
async def test_full_wal_disk_is_reported_and_survived(platform: Platform, home: Path) -> None:
    wal_disk = home / "wal"
    wal_disk.mkdir(mode=0o711)
    with small_disk(wal_disk, "96m"):
        client = SessionClient(platform)
        await start_manager(platform)
        platform.stop("manager")
        await asyncio.to_thread(_move_wal, home / "postgres" / "data", wal_disk)
        await start_manager(platform)
        await client.start_sessions()
        await asyncio.to_thread(fill, wal_disk)
        await client.create_until_refused()
        log = (home / "postgres" / "postgres.log").read_text()
        assert "PANIC" in log, "Postgres had space for its log"
        assert "No space left on device" in log
        await until("restarts fail", lambda: _logged(platform, "postgres could not be restarted"))
        (wal_disk / "filler").unlink()
        await client.check_recovery()
        platform.close()  # before its disk is unmounted


async def _logged(platform: Platform, text: str) -> bool:
    return text in await asyncio.to_thread(platform.output, "manager")
