"""The disk of Postgres is full: the API says so, what was acknowledged stays, and it goes on by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fairlead.common.errors import FairleadError
from fairlead.common.spec import SessionSpec
from fairlead.common.status import Result, Status
from fairlead.sdk import ApiError
from tests.e2e.parts import Platform, until

from .invariants import all_sessions, untold

SMALL = {"cpu": 0.1, "mem": "16MiB"}


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    """Where the manager will put its Postgres: 192 MiB, of which a fresh one takes a third."""
    place = home / "postgres"
    place.mkdir(mode=0o711)
    mount = ["mount", "-t", "tmpfs", "-o", "size=192m,mode=711", "fairlead-test", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"SKIPPED, a full disk was not tried: no tmpfs can be mounted here: {done.stderr.strip()}"
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def platform(home: Path, small_disk: Path) -> Iterator[Platform]:
    made = Platform(home)
    made.env["FAIRLEAD_AGENT__INVENTORY"] = "fake:1xH100"
    yield made
    made.close()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 65_536):
            pass
    assert os.statvfs(disk).f_bavail == 0


@pytest.mark.timeout(180)
async def test_a_full_disk_is_told_and_survived(platform: Platform, small_disk: Path) -> None:
    for part in ("manager", "agent"):
        platform.start(part)
        if part == "manager":
            await until(
                "the first key is there", lambda: asyncio.to_thread((platform.home / "admin-key").exists)
            )
    acknowledged: dict[str, str] = {}
    refused: list[ApiError] = []

    async def create(name: str, program: str) -> bool:
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program], resources=SMALL)
        async with platform.client() as client:
            try:
                acknowledged[(await client.create_session(spec)).id] = name
            except ApiError as error:
                refused.append(error)
                return False
            return True

    await until("the manager takes sessions", lambda: create("before", "exit 0"))
    assert await create("meanwhile", "sleep 5; exit 3")

    async def runs() -> bool:
        async with platform.client() as client:
            return (await client.get_session("meanwhile")).status is Status.RUNNING

    await until("it runs", runs)
    await asyncio.to_thread(fill, small_disk)
    refused.clear()
    text = "x" * 30_000  # each takes several pages
    for n in range(2000):
        try:
            made = await create(f"full-{n}", f"exit 0 # {n} {text}")
        except FairleadError:
            continue  # the answer was lost: neither acknowledged nor refused
        if not made and len(refused) > 5:
            break
    assert refused, "the disk was never full"
    for error in refused:
        assert error.status == 503, f"{error.status} {error}"
        assert error.problem.code == "store-unavailable"
    assert any("disk" in str(error) and "full" in str(error) for error in refused), str(refused[0])

    (small_disk / "filler").unlink()
    await until("it takes sessions again by itself", lambda: create("after", "exit 0"))

    async def ended() -> bool:
        async with platform.client() as client:
            views = {name: await client.get_session(name) for name in ("before", "meanwhile", "after")}
        return all(view.status is Status.TERMINATED for view in views.values())

    await until("all of them end", ended)
    async with platform.client() as client:
        sessions = {s.id: s for s in await all_sessions(client)}
        assert acknowledged.keys() <= sessions.keys(), "nothing that was acknowledged is lost"
        meanwhile = await client.get_session("meanwhile")
        assert (meanwhile.result, meanwhile.kernels[0].exit_code) == (Result.FAILURE, 3)
        for session in sessions.values():
            assert untold(session, await client.history(session.id)) == ""
