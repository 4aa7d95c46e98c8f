"""Records of HEAppE jobs: concurrent writers leave one complete record."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorage.agent.runtimes.heappe.records import HeappeRecord, JobRecords
from moorage.common.model.ids import KernelId


def test_writers_at_the_same_time_leave_a_whole_record(tmp_path: Path) -> None:
    records = JobRecords(tmp_path)
    kernel = KernelId("one")
    assert records.reserve(HeappeRecord(kernel, "one"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: records.save(HeappeRecord(kernel, "one", job_id=n)), range(1, 100)))
    found = records.read(kernel)
    assert found is not None
    assert found.job_id in range(1, 100)
    assert os.listdir(tmp_path) == ["one.json"], "temporary files are gone"
