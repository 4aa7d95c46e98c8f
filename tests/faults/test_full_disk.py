"""A disk of Postgres is full: the API says so, what was acknowledged stays, and it goes on by itself.

Where its data have no room, Postgres refuses a statement. Where its write-ahead log has none it gives up,
all of it, and cannot even start again before there is room.
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

from .invariants import all_sessions, untold

SMALL = {"cpu": 0.1, "mem": "16MiB"}


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "moorage-test", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"SKIPPED, a full disk was not tried: no tmpfs can be mounted here: {done.stderr.strip()}"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def data_disk(home: Path) -> Iterator[Path]:
    """Where the manager will put its Postgres: 192 MiB, of which a fresh one takes a third."""
    place = home / "postgres"
    place.mkdir(mode=0o711)
    with small_disk(place, "192m"):
        yield place


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    made = Platform(home)
    made.env["MOORAGE_AGENT__INVENTORY"] = "fake:1xH100"
    yield made
    made.close()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 65_536):
            pass
    assert os.statvfs(disk).f_bavail == 0


class Asking:
    """Somebody who creates sessions, and remembers what was answered."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.acknowledged: dict[str, str] = {}
        self.refused: list[ApiError] = []

    async def create(self, name: str, program: str) -> bool:
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program], resources=SMALL)
        async with self.platform.client() as client:
            try:
                self.acknowledged[(await client.create_session(spec)).id] = name
            except ApiError as error:
                self.refused.append(error)
                return False
            return True

    async def has(self, status: Status, *names: str) -> bool:
        async with self.platform.client() as client:
            return all([(await client.get_session(name)).status is status for name in names])

    async def begin(self) -> None:
        """One has ended, and one runs that will end meanwhile."""
        self.platform.start("agent")
        await until("the manager takes sessions", lambda: self.create("before", "exit 0"))
        assert await self.create("meanwhile", "sleep 5; exit 3")
        await until("it runs", lambda: self.has(Status.RUNNING, "meanwhile"))

    async def until_full(self) -> None:
        """Create sessions until that is refused, and is again."""
        self.refused.clear()
        text = "x" * 30_000  # each takes several pages
        for n in range(3000):
            try:
                made = await self.create(f"full-{n}", f"exit 0 # {n} {text}")
            except MoorageError:
                continue  # the answer was lost: neither acknowledged nor refused
            if not made and len(self.refused) > 5:
                break
        assert self.refused, "the disk was never full"
        for error in self.refused:
            assert error.status == 503, f"{error.status} {error}"
            assert error.problem.code == "store-unavailable"

    async def end(self) -> None:
        """There is room again."""
        await until("it takes sessions again by itself", lambda: self.create("after", "exit 0"))
        await until("all of them end", lambda: self.has(Status.TERMINATED, "before", "meanwhile", "after"))
        async with self.platform.client() as client:
            sessions = {s.id: s for s in await all_sessions(client)}
            assert self.acknowledged.keys() <= sessions.keys(), "nothing that was acknowledged is lost"
            meanwhile = await client.get_session("meanwhile")
            assert (meanwhile.result, meanwhile.kernels[0].exit_code) == (Result.FAILED, 3)

            async def told(id_: str) -> bool:
                # Some are still on their way: their history may be a step behind what was read before it.
                return untold(await client.get_session(id_), await client.history(id_)) == ""

            for id_ in sessions:
                await until(f"the history of {id_} is whole", partial(told, id_), timeout_s=20)


async def start_manager(platform: Platform) -> None:
    platform.start("manager")
    key = platform.home / "admin-key"
    await until("the first key is there", lambda: asyncio.to_thread(key.exists))


@pytest.mark.timeout(180)
async def test_a_full_disk_is_told_and_survived(platform: Platform, data_disk: Path) -> None:
    asking = Asking(platform)
    await start_manager(platform)
    await asking.begin()
    await asyncio.to_thread(fill, data_disk)
    await asking.until_full()
    assert any("disk" in str(e) and "full" in str(e) for e in asking.refused), str(asking.refused[0])
    (data_disk / "filler").unlink()
    await asking.end()


def _move_log(data: Path, to: Path) -> None:
    """Postgres' write-ahead log to a place of its own, as administrators do it."""
    old, new = data / "pg_wal", to / "pg_wal"
    owner = old.stat()
    shutil.copytree(old, new)
    for path in (new, *new.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    new.chmod(0o700)
    shutil.rmtree(old)
    old.symlink_to(new)


@pytest.mark.timeout(240)
async def test_a_write_ahead_log_without_room_is_told_and_survived(platform: Platform, home: Path) -> None:
    log_disk = home / "wal"
    log_disk.mkdir(mode=0o711)
    with small_disk(log_disk, "96m"):
        asking = Asking(platform)
        await start_manager(platform)
        platform.stop("manager")
        await asyncio.to_thread(_move_log, home / "postgres" / "data", log_disk)
        await start_manager(platform)
        await asking.begin()
        await asyncio.to_thread(fill, log_disk)
        await asking.until_full()
        said = (home / "postgres" / "postgres.log").read_text()
        assert "PANIC" in said, "Postgres had room for its log"
        assert "No space left on device" in said
        await until(
            "every restart fails meanwhile", lambda: _says(platform, "postgres could not be restarted")
        )
        (log_disk / "filler").unlink()
        await asking.end()
        platform.close()  # before its disk goes


async def _says(platform: Platform, words: str) -> bool:
    return words in await asyncio.to_thread(platform.output, "manager")
