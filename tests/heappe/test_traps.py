"""The list of traps in ``README.md``, checked against the existing switches."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from tests.heappe.switches import Switches

TABLE = Path(__file__).with_name("README.md").read_text().partition("## Traps")[2]


def test_every_switch_is_listed_and_every_pitfall_and_correction_has_a_row() -> None:
    listed = set(re.findall(r"`(\w+)`", TABLE))
    assert {field.name for field in fields(Switches)} <= listed
    rows = re.findall(r"^\| ([PC]\d+) \|", TABLE, re.MULTILINE)
    assert rows == [*(f"P{n}" for n in range(1, 16)), *(f"C{n}" for n in range(1, 19))]
