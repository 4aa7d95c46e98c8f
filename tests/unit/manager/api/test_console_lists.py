"""Lists that the console reads: each answer states what it leaves out, and one place in the console
handles that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from moorage.manager.api.http.openapi import describe
from moorage.manager.api.routes import ROUTES

CONSOLE = Path(__file__).parents[4] / "console/src"
# These depend on the manager's version, or on the nodes: `silent` names those that did not answer.
NOT_STORED = {"/v1/runtimes", "/v1/workspaces"}


def lists() -> dict[str, dict[str, Any]]:
    """The properties of answers with items, by the path that the console requests."""
    document: dict[str, Any] = describe(ROUTES, "1.2.3")
    texts = [file.read_text() for file in CONSOLE.rglob("*.ts*")]
    asked = {path for text in texts for path in re.findall(r'api\.GET\(\s*"(/v1/[^"]+)"', text)}
    found = {}
    for path in asked - NOT_STORED:
        content = document["paths"][path]["get"]["responses"]["200"].get("content", {})
        name = (
            content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        )
        properties = document["components"]["schemas"].get(name, {}).get("properties", {})
        if "items" in properties:
            found[path] = properties

    return found


LISTS = lists()


def test_the_lists_are_found() -> None:
    assert {
        "/v1/sessions",
        "/v1/keys",
        "/v1/budgets",
        "/v1/projects/{name}/members",
    } <= LISTS.keys()


@pytest.mark.parametrize("path", sorted(LISTS))
def test_the_answer_says_what_it_lacks(path: str) -> None:
    assert "unreadable" in LISTS[path]


def test_the_console_reads_answers_in_one_place_which_notes_what_they_lack() -> None:
    client = (CONSOLE / "api/client.ts").read_text()
    unwrap = client[client.index("export async function unwrap<T>") :]
    assert "noteUnreadable(response.url, data);" in unwrap[: unwrap.index("\n}\n")]
    shell = (CONSOLE / "app/Shell.tsx").read_text()
    assert "useUnreadable()" in shell[shell.index("function Banners()") :]
