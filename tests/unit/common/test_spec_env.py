"""Validation of environment variables: what Linux passes to a program."""

import os
import subprocess

import pytest
from pydantic import ValidationError

from moorage.common.model.commands import ExecSpec
from moorage.common.model.spec import SessionSpec

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


def test_variables_together_leave_room_for_the_command() -> None:
    env = {f"A{number}": "x" * 120_000 for number in range(9)}
    with pytest.raises(ValidationError, match="the values have 1,080,000 bytes in all; at most"):
        SessionSpec(command=["true"], env=env)

    del env["A8"]
    spec = SessionSpec(command=["true"], env=env)
    subprocess.run(["/bin/true"], env=os.environ | spec.env, check=True)
