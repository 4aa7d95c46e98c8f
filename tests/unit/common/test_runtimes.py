"""The table of runtimes: every place that accepts a runtime's name accepts the name of each
suitable runtime."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from moorage.common.config.settings import AgentSettings
from moorage.common.model.hpc_options import HpcOptions, SiteJob
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.runtimes import (
    DEFAULT_RUNTIME,
    IMAGE_RUNTIME,
    RUNTIMES,
    RuntimeName,
    hostnames_resolve,
    is_custom,
    isolated_name,
    offered_runtimes,
    required_runtime,
    traits_of,
    unisolated,
)
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.endpoints import EndpointPatch


def choices(annotation: Any) -> frozenset[Any]:
    """The values of a ``Literal``, even if null is also allowed; none for another type."""
    if get_origin(annotation) is Literal:
        return frozenset(get_args(annotation))
    if isinstance(annotation, UnionType) or get_origin(annotation) is not None:
        return frozenset().union(
            *(choices(part) for part in get_args(annotation) if part is not type(None))
        )
    return frozenset()


def test_names_are_those_of_the_table() -> None:
    assert set(get_args(RuntimeName)) == set(RUNTIMES)
    assert AgentSettings(runtimes=tuple(RUNTIMES)).runtimes == tuple(RUNTIMES)


@pytest.mark.parametrize(
    ("runtime", "isolated", "expected"),
    [
        ("docker", False, True),
        ("docker", True, True),
        ("process", False, False),
        ("process", True, True),
        ("custom:pods", True, False),
    ],
)
def test_where_host_names_of_clusters_resolve(runtime: str, isolated: bool, expected: bool) -> None:
    assert hostnames_resolve(runtime, isolated) is expected


def test_fields_of_jobs_are_known_to_a_runtime_for_sites() -> None:
    known = {field for traits in RUNTIMES.values() for field in traits.job_fields}
    assert known == set(SiteJob.model_fields) - {"options"}
    assert all(traits.site_jobs for traits in RUNTIMES.values() if traits.job_fields)


def test_what_agents_offer_is_named_by_the_table() -> None:
    offered = [
        "slurm",
        "custom:b",
        "isolated-process",
        "from-the-future",
        "docker",
        "isolated-custom:a",
    ]
    assert offered_runtimes(offered) == ["process", "docker", "slurm", "custom:a", "custom:b"]


@pytest.mark.parametrize(
    "name", ["custom:", "custom:-a", "custom:a-", "custom:A", "custom:a b", f"custom:{'a' * 41}"]
)
def test_name_of_a_plug_in_is_a_word(name: str) -> None:
    assert not is_custom(name)
    with pytest.raises(ValidationError, match="custom:NAME"):
        SessionSpec.model_validate({"command": ["x"], "runtime": name})


def test_members_need_an_agent_that_isolates_the_kernels_of_a_plug_in() -> None:
    assert SessionSpec(command=["x"], runtime="custom:nice").runtime == "custom:nice"
    assert required_runtime("custom:nice", isolated=False) == "custom:nice"
    isolated = required_runtime("custom:nice", isolated=True)
    assert isolated not in ("custom:nice", *RUNTIMES)
    assert unisolated(isolated) == "custom:nice"
    assert traits_of("custom:nice").isolated_as == isolated


@pytest.mark.parametrize("name", RUNTIMES)
def test_traits_decide_what_is_valid(name: RuntimeName) -> None:
    traits = RUNTIMES[name]
    ports = [{"name": "web", "protocol": "http", "port": 8080}]
    given = {"type": "interactive", "runtime": name} | ({"image": "a"} if traits.images else {})
    for more, allowed in (
        ({"image": "python:3.12"}, traits.images),
        ({"ports": ports}, traits.own_network),
        (
            {"command": ["x"], "cluster": {"size": 2, "sub": {"image": "python:3.12"}}},
            traits.images,
        ),
    ):
        if allowed:
            SessionSpec.model_validate(given | more)
        else:
            with pytest.raises(ValidationError, match=f"runtime .*{name}"):
                SessionSpec.model_validate(given | more)

    if traits.site_jobs:
        HpcOptions(runtime=name, walltime_s=60)
    else:
        with pytest.raises(ValidationError):
            HpcOptions(runtime=name, walltime_s=60)


def test_defaults() -> None:
    assert SessionSpec(command=["x"]).runtime == DEFAULT_RUNTIME
    assert RUNTIMES[IMAGE_RUNTIME].images
    assert not RUNTIMES[DEFAULT_RUNTIME].images


@pytest.mark.parametrize("name", [*RUNTIMES, "of-a-newer-release"])
def test_only_processes_of_the_node_are_isolated_on_demand(name: str) -> None:
    assert required_runtime(name, isolated=False) == name
    assert required_runtime(name, isolated=True) == (isolated_name(name) or name)


def test_patch_of_an_endpoint_takes_what_its_spec_takes() -> None:
    """Every choice of a field that both have."""
    fields = EndpointSpec.model_fields
    patch = EndpointPatch.model_fields
    taken = {name: choices(field.annotation) for name, field in patch.items() if name in fields}
    allowed = {name: choices(fields[name].annotation) for name in taken}
    assert {name for name, values in allowed.items() if values} >= {"engine", "overlap"}
    assert patch["runtime"].annotation == RuntimeChoice | None
    assert taken == allowed


@pytest.mark.parametrize("name", RUNTIMES)
def test_endpoint_of_any_runtime_can_be_patched_to_it(name: RuntimeName) -> None:
    spec = EndpointSpec.model_validate({"name": "m", "engine": "llamacpp", "model": "/m.gguf"})
    image = {"image": "engine:1"} if RUNTIMES[name].images else {}
    patch = EndpointPatch.model_validate({"runtime": name} | image)
    assert patch.merged(spec, 1).runtime == name
