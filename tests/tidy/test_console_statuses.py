"""Completeness of the console's status tables, which the manager's sets determine."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path

from moorage.common.model import status as statuses
from moorage.common.model.status import (
    RESULT_OF,
    STARTING,
    TERMINAL,
    AgentStatus,
    EndpointStatus,
    Outcome,
    SessionType,
    Status,
)

CONSOLE = Path(__file__).resolve().parents[2] / "console" / "src"


def _table(name: str) -> dict[str, str]:
    """A console table: its keys and values."""
    text = (CONSOLE / "api" / "statuses.ts").read_text()
    body = re.search(rf"const {name}\b[^{{;]*= {{(.*?)}}", text, re.DOTALL)
    assert body is not None
    return {key: value.strip('"') for key, value in re.findall(r'(\w+): ("?\w+"?)', body[1])}


def test_the_console_classifies_every_status() -> None:
    stages = _table("STAGES")

    def staged(*names: str) -> set[str]:
        return {status for status, stage in stages.items() if stage in names}

    assert list(stages) == list(Status)
    assert staged("ended") == TERMINAL
    assert staged("starting") == STARTING
    assert staged("waiting", "starting") == statuses.BEFORE_RUNNING
    assert _table("OUTCOMES") == {
        str(result): str(outcome) for outcome, result in RESULT_OF.items()
    }
    assert list(_table("TYPE_ORDER")) == list(SessionType)


def test_the_console_has_a_text_for_every_status() -> None:
    texts = json.loads((CONSOLE / "texts" / "en.json").read_text())["status"]
    kinds: Collection[type[StrEnum]] = (Status, Outcome, AgentStatus, EndpointStatus)
    assert {str(member) for kind in kinds for member in kind} <= texts.keys()


def test_the_console_lists_no_statuses_elsewhere() -> None:
    listed = re.compile(r'"([A-Z]+)"(?:,\s*"[A-Z]+")+')
    found = [
        (file.name, match[0])
        for file in CONSOLE.rglob("*.ts*")
        if file.name not in ("statuses.ts", "schema.ts")
        for match in listed.finditer(file.read_text())
        if match[1] in set(Status)
    ]
    assert found == []
