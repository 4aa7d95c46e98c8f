"""Errors about fields, expressed in command line terms."""

from __future__ import annotations

import pytest
from fake_manager import FakeManager
from hypothesis import given
from hypothesis import strategies as st
from invoke import Run

from moorage.cli.option_errors import validation_error
from moorage.common.views.resources import Problem


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "--name", "a b", "--", "x"), "--name='a b': a name consists of"),
        (("run", "--group", "a b", "--", "x"), "--group='a b': a name consists of"),
        (("run", "--resources", "cpu=x", "--", "x"), "--resources: cpu = 'x' is not allowed"),
        (("run", "--image", "A b", "--", "x"), "--image='A b': "),
        (("run", "--agent-label", "a b=1", "--", "x"), "--agent-label='a b': "),
        (("serve", "org/m", "--replicas", "-1"), "--replicas=-1: "),
        (("keys", "create", "a b"), "NAME='a b': a name consists of"),
        (("keys", "create", "a", "--user", "b c"), "--user='b c': a name consists of"),
    ],
)
def test_error_names_the_option_and_the_value(
    moorage: Run, args: tuple[str, ...], message: str
) -> None:
    refused = moorage(*args)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"moorage: {message}"), refused.stderr


def test_error_of_the_manager_names_the_option(manager: FakeManager, moorage: Run) -> None:
    detail = "ports: 'web' sets port 8080, but the ports of the node are shared"
    problem = Problem(
        title="x", status=422, detail=detail, code="invalid-input", next_step="leave it out"
    )
    manager.can("POST", "/v1/sessions", 422, problem)
    refused = moorage("start", "--port", "web")
    assert refused.stderr == f"moorage: --port{detail.removeprefix('ports')}; leave it out\n"
    assert moorage("start", "--port", "web:8080").stderr.startswith(
        "moorage: --port: 'web' sets port 8080"
    )


@given(
    where=st.lists(st.one_of(st.text(), st.integers()), max_size=3),
    value=st.one_of(st.none(), st.text(), st.integers(), st.dictionaries(st.text(), st.text())),
)
def test_any_error_has_its_message(where: list[str | int], value: object) -> None:
    error = {"loc": tuple(where), "msg": "Value error, it is wrong", "input": value}
    assert str(validation_error([error], {"name": "--name"})).endswith("it is wrong")
