"""Results of the clients' checks: what differs through a plane, and the table that shows it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.places import DIRECT

TABLE = Path(__file__).parents[2] / "build" / "clients.md"
# How much of an outcome a difference shows.
SHOWN = 400
SAME = "as directly"
# Fields of errors that may differ, because a proxy answers in its own words.
WORDS = ("text",)


@dataclass(frozen=True)
class Difference:
    client: str
    check: str
    place: str
    directly: Any
    through: Any

    def __str__(self) -> str:
        values = (json.dumps(each)[:SHOWN] for each in (self.directly, self.through))
        return "{}, {}, {}:\n  directly: {}\n  through:  {}".format(
            self.client, self.check, self.place, *values
        )


def _comparable(outcome: Any) -> Any:
    if isinstance(outcome, dict) and "error" in outcome:
        return {name: value for name, value in outcome.items() if name not in WORDS}
    return outcome


class Results:
    def __init__(self) -> None:
        # By client and check: the outcome at each place.
        self._outcomes: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)

    def add(self, lines: str) -> list[Difference]:
        """The differences in the output of a client's program."""
        read = [json.loads(line) for line in lines.splitlines()]
        for line in read:
            outcomes = self._outcomes[line["client"], line["check"]]
            outcomes[line["place"]] = line["outcome"]

        keys = dict.fromkeys((line["client"], line["check"]) for line in read)
        return [difference for key in keys for difference in self._differences(key)]

    def _differences(self, key: tuple[str, str]) -> list[Difference]:
        outcomes = self._outcomes[key]
        directly = outcomes[DIRECT]
        return [
            Difference(*key, place, directly, outcome)
            for place, outcome in outcomes.items()
            if _comparable(outcome) != _comparable(directly)
        ]

    def judged(self, client: str, check: str, place: str, *, same: bool) -> None:
        """A check that its own test has compared."""
        self._outcomes[client, check] |= {DIRECT: SAME, place: SAME if same else "other"}

    def rows(self) -> list[str]:
        """The table in Markdown: a row for each client, and a column for each plane."""
        clients: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key in self._outcomes:
            clients[key[0]].append(key)

        found = {place for outcomes in self._outcomes.values() for place in outcomes}
        places = sorted(found - {DIRECT})
        rows = ["| " + " | ".join(("Client", "Checks", *places)) + " |"]
        rows.append("|---" * (2 + len(places)) + "|")
        for client, keys in clients.items():
            cells = (self._cell(keys, place) for place in places)
            rows.append("| " + " | ".join((client, str(len(keys)), *cells)) + " |")
        return rows

    def _cell(self, keys: list[tuple[str, str]], place: str) -> str:
        """Whether the checks of a client are as directly; otherwise those that differ."""
        if not any(place in self._outcomes[key] for key in keys):
            return "–"
        differing = [each for key in keys for each in self._differences(key)]
        named = ", ".join(each.check for each in differing if each.place == place)
        return f"differs: {named}" if named else SAME

    def write(self) -> None:
        if self._outcomes:
            table = "\n".join(self.rows())
            TABLE.parent.mkdir(exist_ok=True)
            TABLE.write_text(f"# Clients, side by side with the engine\n\n{table}\n")
            print(f"\n{table}")
