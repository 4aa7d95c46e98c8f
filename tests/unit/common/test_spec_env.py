"""Validation of arguments and environment variables: what Linux passes to a program."""

import os
import subprocess

import pytest
from pydantic import BaseModel, ValidationError

from moorage.common.model.commands import CopySpec, ExecSpec
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.spec import SessionSpec
from moorage.common.views.executions import ExecutionSpec
from moorage.common.views.secrets import SecretSpec

LARGEST = 131_072 - len("A=\0")


def test_largest_variable_is_what_linux_takes() -> None:
    spec = SessionSpec(command=["true"], env={"A": "x" * LARGEST})
    subprocess.run(["/bin/true"], env=spec.env, check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"A": "x" * (LARGEST + 1)}, check=True)


@pytest.mark.parametrize("value", ["x" * (LARGEST + 1), "ä" * (LARGEST // 2 + 1)])
def test_larger_variables_are_refused_with_their_size(value: str) -> None:
    expected = f"the value of 'A' has {len(value.encode()):,} bytes, and Linux takes 131,069; pass"
    with pytest.raises(ValidationError, match=expected):
        SessionSpec(command=["true"], env={"A": value})
    with pytest.raises(ValidationError, match=expected):
        ExecSpec(command=["true"], env={"A": value})


def test_names_of_variables_count() -> None:
    with pytest.raises(ValidationError, match=r"the name 'AAA.*has 140,000 bytes, and Linux takes"):
        SessionSpec(command=["true"], env={"A" * 140_000: ""})


@pytest.mark.parametrize("letter", ["x", "ä", "😀"])
def test_arguments_are_measured_in_bytes(letter: str) -> None:
    largest = letter * (131_071 // len(letter.encode()))
    larger = largest + letter
    subprocess.run(["/bin/true", largest], check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true", larger], check=True)

    sessions: list[type[ExecSpec | SessionSpec]] = [ExecSpec, SessionSpec]
    for model in sessions:
        model.model_validate({"command": ["true", largest]})
        with pytest.raises(ValidationError) as refused:
            model.model_validate({"command": ["true", larger]})
        found = refused.value.errors()[0]
        assert found["loc"] == ("command", 1)
        size = f"{len(larger.encode()):,}"
        assert f"the argument has {size} bytes, and Linux takes 131,071" in found["msg"]


@pytest.mark.parametrize(
    ("model", "body", "limit"),
    [
        (CopySpec, {"direction": "in", "path": "ä" * 2048}, "4,095"),
        (CopySpec, {"direction": "in", "name": "ä" * 128}, "255"),
        (SecretSpec, {"value": "ä" * 32_769}, "65,536"),
        (ExecutionSpec, {"code": "ä" * 131_073}, "262,144"),
        (GroupOptions, {"mounts": ["/" + "ä" * 2048]}, "4,095"),
    ],
)
def test_limits_of_linux_and_of_messages_are_in_bytes(
    model: type[BaseModel], body: dict[str, object], limit: str
) -> None:
    with pytest.raises(ValidationError, match=f"bytes; at most {limit} are allowed"):
        model.model_validate(body)


def test_variables_together_leave_room_for_the_command() -> None:
    env = {f"A{number}": "x" * 120_000 for number in range(9)}
    with pytest.raises(ValidationError, match="the values have 1,080,000 bytes in all; at most"):
        SessionSpec(command=["true"], env=env)

    del env["A8"]
    spec = SessionSpec(command=["true"], env=env)
    subprocess.run(["/bin/true"], env=os.environ | spec.env, check=True)
