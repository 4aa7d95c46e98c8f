"""Workloads in resource groups of kind hpc: what their nodes allow, and what their jobs request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from moorage.common.model.errors import Conflict, Infeasible, InvalidInput, MoorageError
from moorage.common.model.hpc_options import HpcOptions, SiteJob
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import SessionType
from moorage.manager.store.sessions import spec_kernels
from moorage.manager.workloads.site_jobs import as_job, find_problem

SITE = HpcOptions(
    runtime="slurm",
    cluster="karolina",
    node_type="gpu",
    partition="qgpu",
    walltime_s=3600,
    queue_timeout_s=7200,
    node_cores=16,
    node_memory="64GiB",
    node_gpus=2,
)


def batch(**fields: Any) -> SessionSpec:
    return SessionSpec(**{"command": ["x"], **fields})


def test_only_sites_whose_nodes_the_proxy_reaches_have_service_ports() -> None:
    notebook = SessionSpec.model_validate({"command": ["x"], "ports": [{"name": "lab"}]})
    assert find_problem(notebook, "hpc", SITE) is None
    problem = find_problem(notebook, "hpc", SITE.model_copy(update={"runtime": "heappe"}))
    assert isinstance(problem, Conflict)
    assert "ports in resource_group 'hpc': its runtime 'heappe' reaches only one port" in str(
        problem
    )


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        (batch(resources={"cpu": 16, "mem": "64GiB", "cuda.device": 2}), None, ""),
        (batch(resources={"cpu": 17}), Infeasible, "cpu = 17 is more than a node .* has .gpu.: 16"),
        (batch(resources={"mem": "65GiB"}), Infeasible, "mem = 65GiB .*: 64GiB"),
        (batch(resources={"cuda.device": 2, "rocm.device": 1}), Infeasible, "gpu = 3 .*: 2"),
        (batch(resources={"cuda.shares": 0.5}), Infeasible, "cuda.shares .* whole devices"),
        (batch(resources={"jobs": 2}), InvalidInput, "resources.jobs"),
        (batch(walltime_s=3601), Conflict, "walltime_s = 3601 is above 3600"),
        (batch(walltime_s=60), None, ""),
        (batch(cluster={"size": 2}), Conflict, "cluster.size = 2"),
        (batch(job=SiteJob(account="other")), InvalidInput, "`job` is set"),
        (
            batch(checkpoint={"signal": "USR1"}),
            Conflict,
            "resource_group 'hpc' has a site: `checkpoint.signal`",
        ),
        (
            batch(reload={"signal": "HUP"}),
            Conflict,
            "resource_group 'hpc' has a site: `reload.signal`",
        ),
    ],
)
def test_what_a_node_allows(spec: SessionSpec, error: type[MoorageError] | None, says: str) -> None:
    problem = find_problem(spec, "hpc", SITE)
    assert type(problem) is (error or type(None))
    if problem is not None:
        assert re.search(says, str(problem))


def test_other_groups_allow_what_they_did_but_no_job_of_the_request() -> None:
    assert find_problem(batch(resources={"cpu": 1000}), "default", None) is None
    assert find_problem(batch(job=SiteJob()), "default", None) is not None
    assert as_job(batch(), None) == batch()


def test_endpoint_cannot_be_reloaded_by_a_signal_that_the_site_does_not_send() -> None:
    fields = {"name": "chat", "engine": "vllm", "model": "m", "reload": {"signal": "HUP"}}
    endpoint = EndpointSpec.model_validate(fields)
    assert find_problem(endpoint, "default", None) is None
    problem = find_problem(endpoint, "hpc", SITE)
    assert isinstance(problem, Conflict)
    assert "`reload.signal`: runtime 'slurm'" in str(problem)


def test_session_takes_one_job_and_asks_for_what_its_group_says() -> None:
    asked = SessionSpec(
        engine="vllm",
        model="m",
        type=SessionType.INFERENCE,
        runtime="docker",
        image="vllm:1",
        resources={"cpu": 4, "cuda.device": 1},
    )
    job = as_job(asked, SITE)
    assert spec_kernels.main_slots(job) == {"jobs": 1} == spec_kernels.total_slots(job)
    assert spec_kernels.requested_slots(job) == {"cpu": 4000, "cuda.device": 1}
    assert (job.runtime, job.image, job.walltime_s, job.queue_timeout_s) == (
        "slurm",
        None,
        3600,
        7200,
    )
    assert job.job == SiteJob(cluster="karolina", node_type="gpu", partition="qgpu")
    own = as_job(batch(walltime_s=60, queue_timeout_s=5), SITE)
    assert (own.walltime_s, own.queue_timeout_s) == (60, 5)
    assert SessionSpec.model_validate_json(job.model_dump_json(exclude_none=True)) == job
