"""Jobs of the test server: the cluster's truth, the lagging database, and uncertain submissions."""

from __future__ import annotations

import pytest

from tests.heappe import HeappeServer, Script
from tests.heappe.client import Caller

LIST = "JobManagement/ListJobsForCurrentUser"


def old(server: HeappeServer) -> bool:
    return server.profile == "6.3.2"


async def state(caller: Caller, job: int) -> int:
    value: int = (await caller.info(job))["State"]
    return value


async def test_the_database_lags_behind_the_queue_and_the_walltime(
    server: HeappeServer, caller: Caller
) -> None:
    server.cluster.script = lambda job: Script(queue_s=100, reason="Priority")
    job = await caller.start("a")
    info = await caller.info(job)
    assert (info["State"], info["Tasks"][0]["Reason"]) == (4, "Priority")
    assert info["StartTime"] > info["SubmitTime"], "the scheduler's estimate"
    await server.advance(105)
    assert server.cluster.jobs[0].state == "RUNNING"
    assert await state(caller, job) == 4
    await server.advance(16)
    assert await state(caller, job) == 8
    await server.advance(600)
    assert server.cluster.jobs[0].state == "TIMEOUT"
    await server.advance(30)
    assert await state(caller, job) == 32
    assert server.running() == []


@pytest.mark.parametrize(("code", "expected"), [(0, 16), (7, 32)])
async def test_exit_codes(server: HeappeServer, caller: Caller, code: int, expected: int) -> None:
    server.cluster.script = lambda job: Script(run_s=10, exit_code=code)
    job = await caller.start("a")
    await server.advance(61)
    assert await state(caller, job) == expected


@pytest.mark.parametrize("reads", [32, 64])
async def test_cancelled_jobs_complete_first_and_may_read_failed(
    server: HeappeServer, caller: Caller, reads: int
) -> None:
    server.switches.cancelled_reads = reads
    server.cluster.script = lambda job: Script(completing_s=20)
    job = await caller.start("a")
    await server.advance(31)
    answer = await caller.cancel(job)
    assert answer.value["State"] == 8, "COMPLETING reads as Running"
    await server.advance(61)
    assert await state(caller, job) == reads
    again = await caller.cancel(job)
    assert again.status == 400
    assert "this job is in state" in again.value["detail"]


async def test_cancelling_what_was_not_submitted_is_not_saved_in_632(
    server: HeappeServer, caller: Caller
) -> None:
    server.switches.account_busy = True
    job = await caller.start("a")
    assert await state(caller, job) == 128
    assert (await caller.cancel(job)).value["State"] == 64
    await server.advance(11)
    assert await state(caller, job) == (128 if old(server) else 64)
    server.switches.account_busy = False
    await server.advance(31)
    assert server.running() == (["a"] if old(server) else [])


@pytest.mark.parametrize(
    ("how", "expected"),
    [("slurm", (502, 502)), ("ssh-command", (500, 502)), ("empty", (500, 500))],
)
async def test_a_lost_submit_leaves_the_row_configuring(
    server: HeappeServer, caller: Caller, how: str, expected: tuple[int, int]
) -> None:
    server.switches.submit_lost = 1
    server.switches.submit_lost_as = how
    job = await caller.create("a")
    assert (await caller.submit(job)).status == expected[not old(server)]
    await server.advance(61)
    assert await state(caller, job) == 1
    assert server.running() == ["a"]
    assert server.leaked_node_seconds() > 0
    assert (await caller.submit(job)).status == 200
    assert server.running() == ["a", "a"], "a second submit doubles the job"


async def test_an_answer_lost_in_the_gateway(server: HeappeServer, caller: Caller) -> None:
    server.switches.answers_lost = 1
    server.switches.only = "SubmitJob"
    job = await caller.create("a")
    answer = await caller.submit(job)
    assert (answer.status, answer.kind) == (504, "text/html")
    assert await state(caller, job) in (4, 8)
    assert (await caller.submit(job)).status == (404 if old(server) else 400)


async def test_the_site_may_double_a_job_by_itself(server: HeappeServer, caller: Caller) -> None:
    server.switches.submit_doubled = 1
    await caller.start("a")
    assert server.running() == ["a", "a"]
    assert len(server.unknown()) == 1


async def test_refused_submits_leave_nothing(server: HeappeServer, caller: Caller) -> None:
    server.switches.submit_refused = "sbatch: error: invalid partition"
    job = await caller.create("a")
    answer = await caller.submit(job)
    assert (answer.status, answer.value["title"]) == (502, "Slurm Problem")
    assert "invalid partition" in answer.value["detail"]
    assert server.running() == []


async def test_a_failed_creation_leaves_a_row_in_632(server: HeappeServer, caller: Caller) -> None:
    server.switches.create_leaves_row = 1
    with pytest.raises(AssertionError, match="502"):
        await caller.create("a")
    found = (await caller.call("GET", LIST)).value
    assert [job["Name"] for job in found] == (["a"] if old(server) else [])


async def test_a_false_failed_is_for_ever_and_bills(server: HeappeServer, caller: Caller) -> None:
    job = await caller.start("a")
    await server.advance(31)
    server.switches.false_failed = 1
    await server.advance(30)
    assert await state(caller, job) == 32
    assert (await caller.cancel(job)).status == 400
    await server.advance(60)
    assert await state(caller, job) == 32
    assert server.running() == ["a"]
    assert server.leaked_node_seconds() == pytest.approx(60, abs=2)


async def test_sites_with_ssh_certificates_poll_only_on_demand(
    server: HeappeServer, caller: Caller
) -> None:
    server.switches.ssh_ca = True
    server.cluster.script = lambda job: Script(queue_s=10)
    job = await caller.start("a")
    await server.advance(300)
    assert [found["State"] for found in (await caller.call("GET", LIST)).value] == [4]
    assert await state(caller, job) == 8
    await server.advance(11)
    assert [found["State"] for found in (await caller.call("GET", LIST)).value] == [8]


async def test_clusters_that_call_back_are_not_polled(server: HeappeServer, caller: Caller) -> None:
    server.switches.callback_cluster = True
    job = await caller.start("a")
    await server.advance(11)
    assert await state(caller, job) == 8
    server.switches.callbacks_lost = True
    server.cluster.script = lambda job: Script(queue_s=10_000)
    waiting = await caller.start("b")
    await server.advance(700)
    assert await state(caller, job) == 32, "60 s beyond its walltime"
    assert await state(caller, waiting) == 4
    await server.advance(1300)
    assert await state(caller, waiting) == 32, "waited longer than three times its walltime"
    assert server.running() == ["b"]


async def test_a_waiting_limit_cancels(server: HeappeServer, caller: Caller) -> None:
    server.cluster.script = lambda job: Script(queue_s=10_000)
    job = await caller.start("a")
    server.database.jobs[job].waiting_limit_s = 60
    await server.advance(120)
    assert await state(caller, job) == 32
    assert server.running() == []


async def test_lists_in_both_profiles(server: HeappeServer, caller: Caller) -> None:
    for number in range(5):
        server.add_job(f"old-{number}", state=16)

    server.add_job("theirs", user="other", state=8)
    await caller.create("mine")
    mine = [job["Name"] for job in (await caller.call("GET", LIST, JobStates="1,8")).value]
    assert mine == ["mine"]
    page = [job["Name"] for job in (await caller.call("GET", LIST, Limit=2, Offset=1)).value]
    assert page == (
        ["old-0", "old-1", "old-2", "old-3", "old-4", "mine"] if old(server) else ["old-4", "old-3"]
    )

    async with Caller(server, "manager") as manager:
        seen = {job["Name"] for job in (await manager.call("GET", LIST)).value}
        assert ("theirs" in seen) is not old(server), "a manager gets everybody's jobs in 6.5"
        own = (await manager.call("GET", LIST, UserId=3)).value
        assert own == []

    assert (await caller.call("GET", LIST, JobStates="1,x")).status == 500


async def test_times_have_the_zone_of_the_cluster_since_64(
    server: HeappeServer, caller: Caller
) -> None:
    job = await caller.start("a")
    await server.advance(31)
    info = await caller.info(job)
    hour = "00" if old(server) else "01"
    assert info["SubmitTime"] == f"2026-01-01T{hour}:00:00.0000000"
    server.switches.times_with_offset = True
    server.switches.clock_skew_s = 3600
    await server.advance(11)
    info = await caller.info(job)
    assert info["SubmitTime"] == (
        "2026-01-01T01:00:00.0000000" if old(server) else "2026-01-01T02:00:00.0000000+01:00"
    )


async def test_answers_of_65_are_ten_seconds_old(server: HeappeServer, caller: Caller) -> None:
    server.switches.cache_survives_writes = True
    job = await caller.create("a")
    assert await state(caller, job) == 1
    await caller.submit(job)
    assert await state(caller, job) == (8 if old(server) else 1)
    await server.advance(10)
    assert await state(caller, job) == 8


async def test_addresses_only_while_the_database_says_running(
    server: HeappeServer, caller: Caller
) -> None:
    server.cluster.script = lambda job: Script(queue_s=100)
    job = await caller.start("a")
    task = (await caller.info(job))["Tasks"][0]["Id"]
    path = "JobManagement/AllocatedNodesIPs"
    assert (await caller.call("GET", path, SubmittedTaskInfoId=task)).status == (
        404 if old(server) else 400
    )
    await server.advance(130)
    assert (await caller.call("GET", path, SubmittedTaskInfoId=task)).value == ["127.0.1.1"]
    server.switches.node_names = ["3(NXDOMAIN)"]
    assert (await caller.call("GET", path, SubmittedTaskInfoId=task)).value == ["3(NXDOMAIN)"]


async def test_several_tasks_are_queued_and_refused_in_632(
    server: HeappeServer, caller: Caller
) -> None:
    job = await caller.create("a")
    task = server.database.jobs[job].tasks[0]
    server.database.jobs[job].tasks.append(task)
    assert (await caller.submit(job)).status == (400 if old(server) else 200)
    assert server.running() == ["a", "a"]


async def test_logs_come_in_parts_with_the_requested_offset(
    server: HeappeServer, caller: Caller
) -> None:
    server.cluster.script = lambda job: Script(files={"stdout.txt": "one\ntwö\n"})
    job = await caller.start("a")
    task = (await caller.info(job))["Tasks"][0]["Id"]
    part = (await caller.part(job, task, kind=3, offset=4)).value[0]
    assert (part["Content"], part["Offset"]) == ("twö\n", 4)
    assert (await caller.part(job, task, kind=0)).value == [], "a missing file is left out"
    answer = await caller.call(
        "POST", "FileTransfer/DownloadFileFromCluster",
        {"SubmittedJobInfoId": job, "RelativeFilePath": f"/{task}/stdout.txt"},
    )  # fmt: skip
    assert answer.value == "b25lCnR3w7YK"


async def test_dry_run_estimates_the_queue(server: HeappeServer, caller: Caller) -> None:
    server.queue_estimate_s = 7200
    body = {
        "ProjectId": 1,
        "ClusterNodeTypeId": 7,
        "Nodes": 1,
        "TasksPerNode": 1,
        "WallTimeInMinutes": 60,
    }
    answer = await caller.call("POST", "JobManagement/DryRunJob", body)
    assert answer.value["StartTime"] == f"2026-01-01T0{2 if old(server) else 3}:00:00.0000000"
    server.switches.dry_run_unparsable = True
    answer = await caller.call("POST", "JobManagement/DryRunJob", body)
    assert answer.value["StartTime"] == "0001-01-01T00:00:00"
