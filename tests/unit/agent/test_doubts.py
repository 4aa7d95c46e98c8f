"""The ledger of doubtful jobs: how doubts are entered and settled, and that a restart loses
none."""

from __future__ import annotations

from pathlib import Path

from moorage.agent.runtimes.batch.doubts import DoubtLedger
from moorage.common.aio.clock import ManualClock


def ledger(tmp_path: Path, clock: ManualClock) -> DoubtLedger:
    return DoubtLedger(tmp_path / "jobs" / "doubtful", "slurm", clock)


async def test_doubt_keeps_its_beginning_over_restarts(tmp_path: Path) -> None:
    clock = ManualClock()
    before = ledger(tmp_path, clock)
    before.note("mg-1", "7", "no answer\0", "watched")
    await before.save()
    [first] = before.jobs()
    assert (first.runtime, first.why, first.tried) == ("slurm", "no answer", "watched")
    clock.advance(60)
    after = ledger(tmp_path, clock)
    after.note("mg-1", "7", "still no answer", "watched")
    [now] = after.jobs()
    assert (now.since, now.why) == (first.since, "still no answer")
    after.settle("mg-1", "7")
    await after.save()
    assert ledger(tmp_path, clock).jobs() == ()


async def test_job_that_cannot_run_any_more_is_settled(tmp_path: Path) -> None:
    clock = ManualClock()
    doubts = ledger(tmp_path, clock)
    doubts.note("mg-1", "7", "failed", until=clock.now().timestamp() + 100)
    doubts.note("mg-2", "8", "lost")
    clock.advance(99)
    assert [job.name for job in doubts.jobs()] == ["mg-1", "mg-2"]
    clock.advance(2)
    assert [job.name for job in doubts.jobs()] == ["mg-2"]


async def test_job_is_settled_once_the_site_does_not_list_it(tmp_path: Path) -> None:
    doubts = ledger(tmp_path, ManualClock())
    doubts.note("mg-1", "7", "nobody's", listed=True)
    doubts.note("mg-1", "8", "nobody's", listed=True)
    doubts.note("mg-2", "", "no answer")
    doubts.settle_unlisted({"8"})
    assert [(job.name, job.job_id) for job in doubts.jobs()] == [("mg-1", "8"), ("mg-2", "")]
    doubts.settle("mg-1")
    assert [job.name for job in doubts.jobs()] == ["mg-2"]


async def test_broken_file_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    for text in ("{", "[{}]", '[{"job": 1}]', "7"):
        (tmp_path / "jobs" / "doubtful").write_text(text)
        assert ledger(tmp_path, ManualClock()).jobs() == ()
