"""Variables that describe a run to its program: resources, owner, attempt and end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.agent.runtimes import Launch
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    session_name="train",
    session_type=SessionType.BATCH,
    runtime="process",
    engine="custom",
    served_name="train",
    command=("true",),
    slots={"cpu": 2500, "mem": 1 << 30, "cuda.device": 2},
    devices=tuple(DeviceGrant("cuda.device", DeviceId(f"GPU-{n}"), 1000) for n in range(2)),
    attempt=3,
    user="ada",
    project="vision",
    time_limit_s=3600.0,
)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def launch(
    spec: KernelSpec, *, agent_env: dict[str, str] | None = None, **fields: object
) -> Launch:
    context = LaunchContext(
        contained=bool(fields.pop("contained", False)),
        host="127.0.0.1",
        node=NodeInfo(inherited=("OMP_*",)),
        work_dir="/work",
        agent_env=agent_env or {},
        started_at=NOON,
    )
    context = replace(context, **fields)
    return build_launch(spec, build_invocation(ENGINES[spec.engine], spec, 0, context), 0, context)


@pytest.mark.parametrize("contained", [False, True])
def test_a_program_knows_its_attempt_resources_owner_and_end(contained: bool) -> None:
    env = launch(SPEC, contained=contained).env
    assert {
        name: env[f"MOORAGE_{name}"]
        for name in ("ATTEMPT", "CPUS", "MEMORY_BYTES", "GPUS", "USER", "PROJECT", "END_TIME")
    } == {
        "ATTEMPT": "3",
        "CPUS": "2.5",
        "MEMORY_BYTES": "1073741824",
        "GPUS": "2",
        "USER": "ada",
        "PROJECT": "vision",
        "END_TIME": str(int(NOON.timestamp()) + 3600),
    }


def test_a_variable_of_the_run_cannot_be_overridden() -> None:
    assert launch(replace(SPEC, env={"MOORAGE_USER": "eve"})).env["MOORAGE_USER"] == "ada"


def test_what_an_older_manager_does_not_send_is_left_out() -> None:
    env = launch(replace(SPEC, attempt=0, user="", project="", time_limit_s=0.0)).env
    assert {"MOORAGE_ATTEMPT", "MOORAGE_USER", "MOORAGE_PROJECT", "MOORAGE_END_TIME"}.isdisjoint(
        env
    )


def test_the_end_of_a_job_that_waits_at_its_site_is_unknown() -> None:
    job = launch(SPEC, contained=True, own_address=True, started_at=None)
    assert "MOORAGE_END_TIME" not in job.env


def test_numerics_use_the_processors_of_the_session_unless_told_otherwise() -> None:
    assert launch(SPEC).env["OMP_NUM_THREADS"] == "2"
    assert launch(replace(SPEC, slots={"cpu": 100})).env["OMP_NUM_THREADS"] == "1"
    assert launch(replace(SPEC, env={"OMP_NUM_THREADS": "7"})).env["OMP_NUM_THREADS"] == "7"
    assert launch(SPEC, agent_env={"OMP_NUM_THREADS": "5"}).env["OMP_NUM_THREADS"] == "5"


def test_an_image_overrides_the_number_of_threads() -> None:
    """Only the runtime knows the variables of the image."""
    contained = launch(SPEC, contained=True)
    assert "OMP_NUM_THREADS" not in contained.env
    assert contained.default_env == {"OMP_NUM_THREADS": "2"}
    chosen = launch(replace(SPEC, env={"OMP_NUM_THREADS": "7"}), contained=True)
    assert (chosen.env["OMP_NUM_THREADS"], chosen.default_env) == ("7", {})


def test_engines_of_models_choose_their_threads_themselves() -> None:
    engine = replace(SPEC, engine="vllm", model="/m", session_type=SessionType.INFERENCE)
    for contained in (False, True):
        served = launch(engine, contained=contained)
        assert "OMP_NUM_THREADS" not in served.env
        assert served.default_env == {}


def test_a_site_chooses_the_threads_of_its_jobs() -> None:
    job = launch(SPEC, contained=True, own_address=True)
    assert "OMP_NUM_THREADS" not in job.env
    assert job.default_env == {}
