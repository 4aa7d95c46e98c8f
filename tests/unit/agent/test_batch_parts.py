"""Job names, submissions with an unknown outcome, and sbatch options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.batch import (
    JobCandidate,
    JobName,
    SubmissionVerdict,
    agent_part,
    kernel_part,
    resolve,
)
from moorage.agent.runtimes.slurm.job_options import JobDefaults, sbatch_options
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import HpcJob

KERNEL = KernelId("01a204e8-ffb7-7f95-b015-6deae0067020")


def test_name_fits_every_site_and_is_read_back() -> None:
    name = JobName(agent_part("identity"), kernel_part(KERNEL), 3)
    assert str(name) == f"mg-{agent_part('identity')}-6deae0067020-3"
    assert len(str(name)) <= 31
    assert JobName.parse(str(name)) == name
    assert len(kernel_part(KernelId("not-a-uuid"))) == 12


@pytest.mark.parametrize(
    "foreign", ["", "mg-", "mg-1234567-123456789abc-1", "bai-x", "mg-12345678-123456789abc-1 "]
)
def test_foreign_names_are_not_ours(foreign: str) -> None:
    assert JobName.parse(foreign) is None


WAITS = JobCandidate("5", True, False)
RUNS = JobCandidate("6", True, True)
OVER = JobCandidate("4", False, False)


@pytest.mark.parametrize(
    ("known", "found", "doubt_s", "verdict"),
    [
        ("5", [WAITS], None, SubmissionVerdict("5")),
        # the site doubled the job; we follow the one that we know
        ("5", [WAITS, RUNS], None, SubmissionVerdict("5", ("6",))),
        ("5", [], None, SubmissionVerdict("5")),
        ("", [WAITS], 3.0, SubmissionVerdict("5")),  # the lost answer
        ("", [WAITS, RUNS], 3.0, SubmissionVerdict("6", ("5",))),
        ("", [OVER], 3.0, SubmissionVerdict("4")),
        ("", [], 3.0, SubmissionVerdict("")),
        ("", [], 500.0, SubmissionVerdict("", never=True)),
        (
            "",
            [],
            None,
            SubmissionVerdict(""),
        ),  # the site does not answer, so nothing can be concluded
    ],
)
def test_job_of_a_kernel(
    known: str, found: list[JobCandidate], doubt_s: float | None, verdict: SubmissionVerdict
) -> None:
    assert resolve(known, found, doubt_s=doubt_s) == verdict


CANDIDATES = st.lists(
    st.builds(lambda number, active, running: JobCandidate(str(number), active or running, running),
              st.integers(1, 30), st.booleans(), st.booleans()), unique_by=lambda one: one.job_id,
)  # fmt: skip


@given(CANDIDATES, st.sampled_from(["", "7"]))
def test_at_most_one_job_remains(found: list[JobCandidate], known: str) -> None:
    verdict = resolve(known, found, doubt_s=1e9)
    left = {one.job_id for one in found if one.active} - set(verdict.doubles)
    assert left <= {verdict.job_id}
    assert verdict.never is (not found and not known)


LAUNCH = Launch(KERNEL, ("true",), {}, slots={"cpu": 1500, "mem": 3 << 20, "cuda.device": 2})
FOLDER = Path("/jobs/k")


def options(launch: Launch, defaults: JobDefaults | None = None) -> list[str]:
    return sbatch_options(
        launch, "mg-x", FOLDER, FOLDER / "out", defaults=defaults or JobDefaults()
    )


def test_resources_become_options() -> None:
    found = options(LAUNCH)
    assert {
        "--cpus-per-task=2",
        "--mem=3M",
        "--gres=gpu:2",
        "--job-name=mg-x",
        "--no-requeue",
    } <= set(found)
    assert "--export=NIL" in found  # the agent's environment may hold secrets
    assert not any(word.startswith("--time") for word in found)


def test_group_overrides_agent() -> None:
    defaults = JobDefaults(
        "cpu", "OLD", qos="normal", walltime_s=3600, options=("--reservation=r",)
    )
    job = HpcJob(
        partition="gpu",
        account="NEW",
        walltime_s=61,
        options={"constraint": "a100", "exclusive": ""},
    )
    found = options(replace(LAUNCH, hpc=job), defaults)
    assert {
        "--partition=gpu",
        "--account=NEW",
        "--qos=normal",
        "--time=2",
        "--reservation=r",
    } <= set(found)
    assert found[-2:] == ["--constraint=a100", "--exclusive"]
    assert {"--partition=cpu", "--account=OLD", "--time=60"} <= set(options(LAUNCH, defaults))


@pytest.mark.parametrize("name", ["wrap", "job-name", "export", "output", "Bad Name", "-x"])
def test_options_that_would_take_over_the_job_are_refused(name: str) -> None:
    with pytest.raises(CreateFailed, match="not allowed") as caught:
        options(replace(LAUNCH, hpc=HpcJob(options={name: "x"})))
    assert caught.value.clean
