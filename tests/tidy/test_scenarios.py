"""The table of scenarios: each names an existing test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_scenario_is_shown(scenario: Scenario) -> None:
    assert scenario.tests
    for test in scenario.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists(), test
