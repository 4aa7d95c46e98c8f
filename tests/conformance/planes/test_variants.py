"""The table of variants: it names everything that exists, and whatever it leaves out runs in ``make
full``."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conformance.planes.harness import PLANES
from tests.conformance.planes.variants import ALONE, FULL, OTHERS, SEAMS, gate_variants, parameters

HERE = Path(__file__).parent


def _tests_of(module: str) -> set[str]:
    """The module's tests that take a plane."""
    functions = (
        node
        for node in ast.parse((HERE / f"{module}.py").read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )
    return {
        node.name
        for node in functions
        if {"plane", "running"} & {argument.arg for argument in node.args.args}
    }


MODULES = {
    path.stem: _tests_of(path.stem) for path in HERE.glob("test_*.py") if _tests_of(path.stem)
}


def test_every_module_has_its_reason_and_every_name_is_one() -> None:
    assert set(PLANES) == {FULL, *OTHERS}
    assert not SEAMS.keys() & ALONE.keys()
    assert MODULES.keys() == SEAMS.keys() | ALONE.keys()
    for module, seams in SEAMS.items():
        for seam in seams:
            assert set(seam.variants) <= set(OTHERS)
            assert set(seam.tests) <= MODULES[module], module


def test_nothing_is_left_out_but_by_the_mark() -> None:
    for module, test in [(module, test) for module, tests in MODULES.items() for test in tests]:
        marks = {
            each.values[0]: [mark.name for mark in each.marks] for each in parameters(module, test)
        }
        assert marks.keys() == PLANES.keys()
        assert marks[FULL] == []
        left_out = {variant for variant, names in marks.items() if names == ["slow"]}
        assert left_out == PLANES.keys() - gate_variants(module, test)
