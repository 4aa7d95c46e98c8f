"""Session templates: merging, parameters, roles, and refused templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from moorage.common.model.errors import InvalidInput
from moorage.common.model.templates import TemplateSpec
from moorage.manager.workloads import templates

TRAIN = TemplateSpec.model_validate(
    {
        "parameters": {
            "epochs": {"type": "integer", "default": 3, "min": 1, "max": 100},
            "workers": {"type": "integer", "default": 2, "min": 0, "max": 8},
            "data": {},
        },
        "spec": {
            "type": "batch",
            "env": {"EPOCHS": "{{ epochs }}", "RAW": "{{{{ x }}"},
            "labels": {"room": "n"},
        },
        "roles": {
            "main": {"command": ["train", "--data={{ data }}"], "resources": {"cpu": 1}},
            "sub": {"count": "{{ workers }}", "command": ["work"], "resources": {"cpu": 2}},
        },
    }
)


def made(
    parameters: dict[str, Any], overrides: dict[str, Any], defaults: dict[str, Any] | None = None
) -> Any:
    fields = templates.session_fields(TRAIN, parameters)
    return templates.validated_merge(fields, defaults or {}, overrides)


def test_roles_become_a_cluster_with_their_own_commands_and_resources() -> None:
    spec = made({"data": "/d", "epochs": 5}, {})
    assert spec.command == ["train", "--data=/d"]
    assert spec.env == {"EPOCHS": "5", "RAW": "{{ x }}"}
    assert spec.cluster.size == 3
    assert (spec.cluster.sub.command, spec.cluster.sub.resources) == (["work"], {"cpu": 2})
    assert made({"data": "/d", "workers": 0}, {}).cluster is None


def test_the_caller_overrides_the_group_which_overrides_the_template() -> None:
    overrides = {
        "command": ["mine"],
        "env": {"A": "1"},
        "labels": None,
        "cluster": {"sub": {"command": ["w2"]}},
    }
    spec = made({"data": "/d"}, overrides, {"env": {"A": "0", "B": "2"}, "priority": 3})
    assert spec.command == ["mine"]
    assert spec.env == {"EPOCHS": "3", "RAW": "{{ x }}", "A": "1", "B": "2"}
    assert (spec.labels, spec.priority) == ({}, 3)
    assert (spec.cluster.sub.command, spec.cluster.sub.resources) == (["w2"], {"cpu": 2})


@pytest.mark.parametrize(
    ("parameters", "overrides", "message"),
    [
        ({}, {}, "'data' is missing"),
        ({"data": "d", "epoch": 1}, {}, "no parameter 'epoch'"),
        ({"data": "d", "epochs": 0}, {}, "the smallest allowed value is 1"),
        ({"data": "d", "epochs": 101}, {}, "the largest allowed value is 100"),
        ({"data": "d", "epochs": True}, {}, "must be a integer"),
        ({"data": 1}, {}, "must be a string"),
        ({"data": "d"}, {"colour": "red"}, "colour"),
        ({"data": "d"}, {"cluster": {"subs": {}}}, "cluster.subs"),
        ({"data": "d"}, {"roles": {"worker": {}}}, "roles"),
    ],
)
def test_wrong_parameters_and_unknown_overrides_are_named(
    parameters: dict[str, Any], overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        made(parameters, overrides)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"spec": {"commands": ["x"]}}, "spec.commands"),
        ({"spec": {"command": ["{{ x }}"]}}, "is not a parameter"),
        (
            {"spec": {"command": ["{{ x + 1 }}"]}, "parameters": {"x": {"default": "1"}}},
            "is not a parameter",
        ),
        ({"spec": {"command": ["x"], "timeout_s": -1}}, "timeout_s"),
        (
            {"spec": {"cluster": {"size": 2}}, "roles": {"main": {"command": ["x"]}}},
            "both set the number",
        ),
    ],
)
def test_templates_that_make_no_session_are_refused(template: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        templates.check(TemplateSpec.model_validate(template))


@pytest.mark.parametrize(
    "roles",
    [
        {"sub": {"command": ["x"]}},
        {"main": {"count": 2, "command": ["x"]}},
        {"main": {}, "worker": {}},
    ],
)
def test_roles_have_one_main_and_no_other_than_sub(roles: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TemplateSpec.model_validate({"roles": roles})


def test_deep_templates_are_refused_and_end_nothing() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match="levels deep"):
        made({"data": "d"}, {"env": deep})


DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda below: st.dictionaries(st.text(max_size=2), below, max_size=3),
)
OBJECTS = st.dictionaries(st.text(max_size=2), DOCUMENTS, max_size=3)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_merge_is_associative_and_empty_objects_change_nothing(a: Any, b: Any, c: Any) -> None:
    assert templates.merge(a, {}) == a
    assert templates.merge({}, a) == a
    assert templates.merge(templates.merge(a, a), a) == a
    if all(not isinstance(v, dict) for part in (a, b, c) for v in part.values()):
        assert templates.merge(templates.merge(a, b), c) == templates.merge(
            a, templates.merge(b, c)
        )
