"""Two jobs of one kernel: HEAppE repeats a submission over SSH by itself, and has only the later
job."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import Process
from pathlib import Path

from heappe_harness import JOB_SCRIPT

WITHIN_S = 40


async def start(folder: Path, number: str, program: str, *, serves: bool = False) -> Process:
    """A job's program as a site starts it; ``number``: the job's number in the batch system."""
    launch = {"argv": ["sh", "-c", program], "serves": serves, "grace_s": 1}
    (folder / "launch.json").write_text(json.dumps(launch))
    env = {"PATH": os.environ["PATH"], "MOORAGE_PYTHON": sys.executable, "SLURM_JOB_ID": number}
    return await asyncio.create_subprocess_exec("bash", str(JOB_SCRIPT), cwd=folder, env=env)


async def code_of(job: Process) -> int:
    return await asyncio.wait_for(job.wait(), WITHIN_S)


async def until_written(path: Path, text: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not path.exists() or text not in path.read_text():
            await asyncio.sleep(0.05)


def told(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "progress.txt").read_text().splitlines()]


async def test_the_earlier_job_ends_when_the_later_one_starts(tmp_path: Path) -> None:
    """The earlier job's records about itself are gone, and it writes no more."""
    wait = (
        'echo begun >> "$SLURM_JOB_ID"; while [ ! -e gate ]; do sleep 0.1; done; echo done >> ended'
    )
    first = await start(tmp_path, "101", wait, serves=True)
    await until_written(tmp_path / "progress.txt", "port")
    [before] = told(tmp_path)
    second = await start(tmp_path, "102", wait, serves=True)
    await code_of(first)
    await until_written(tmp_path / "progress.txt", "port")
    [after] = told(tmp_path)
    assert after["key"] != before["key"]
    (tmp_path / "gate").touch()
    assert await code_of(second) == 0
    assert told(tmp_path) == [after, {"exit": 0}]
    assert (tmp_path / "ended").read_text() == "done\n"


async def test_the_earlier_job_does_not_start_after_the_later_one(tmp_path: Path) -> None:
    later = await start(tmp_path, "102", "echo ran >> ran; while [ ! -e gate ]; do sleep 0.1; done")
    await until_written(tmp_path / "ran", "ran")
    assert await code_of(await start(tmp_path, "101", "echo ran >> ran")) == 0
    (tmp_path / "gate").touch()
    assert await code_of(later) == 0
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert told(tmp_path) == [{"moorage": 1}, {"exit": 0}]


async def test_what_an_earlier_job_has_done_is_not_done_again(tmp_path: Path) -> None:
    assert await code_of(await start(tmp_path, "101", "echo ran >> ran; exit 3")) == 3
    assert await code_of(await start(tmp_path, "102", "echo ran >> ran; exit 3")) == 3
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_job_that_the_site_starts_again_runs_again(tmp_path: Path) -> None:
    """A requeued job keeps its number."""
    for expected in ("ran\n", "ran\nran\n"):
        assert await code_of(await start(tmp_path, "101", "echo ran >> ran")) == 0
        assert (tmp_path / "ran").read_text() == expected


async def test_a_job_whose_directory_was_deleted_ends(tmp_path: Path) -> None:
    """The job's agent has given it up: the site considers the job ended, and another job takes its
    place."""
    folder = tmp_path / "job"
    folder.mkdir()
    job = await start(
        folder, "101", "trap 'echo asked >> ../asked; exit 0' TERM; while :; do sleep 0.1; done"
    )
    await until_written(folder / "progress.txt", "moorage")
    shutil.rmtree(folder)
    assert await code_of(job) == 0
    assert (tmp_path / "asked").read_text() == "asked\n"


async def test_without_a_number_jobs_run(tmp_path: Path) -> None:
    for _ in range(2):
        assert await code_of(await start(tmp_path, "", "echo ran >> ran")) == 0
    assert (tmp_path / "ran").read_text() == "ran\nran\n"
