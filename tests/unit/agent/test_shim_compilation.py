"""Compilation of the supervisors' programs, which several kernel starts may request at once."""

from __future__ import annotations

import py_compile
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.runtimes.process.programs import COMMAND_SHIM, SHIM, compile_programs, program


def test_programs_appear_after_their_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_one = py_compile.compile
    seen = dict[str, set[str]]()

    def compile_and_look(*args: Any, **kwargs: Any) -> None:
        compile_one(*args, **kwargs)
        for name in (SHIM, COMMAND_SHIM):
            if program(tmp_path, name).exists() and name not in seen:
                seen[name] = {path.name for path in tmp_path.iterdir()}

    monkeypatch.setattr(py_compile, "compile", compile_and_look)
    compile_programs(tmp_path)
    everything = {path.name for path in tmp_path.iterdir()}
    assert seen[SHIM] == everything
    assert seen[COMMAND_SHIM] == everything - {program(tmp_path, SHIM).name}
