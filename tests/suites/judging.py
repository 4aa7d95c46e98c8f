"""The verdict on a suite: what fails through the proxy only, and a table of the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.suites.running import (
    Address,
    Allowed,
    Outcomes,
    Suite,
    allowed,
    confirmed,
    passed,
    run,
    suspects,
    unused,
)


def figures(outcomes: Outcomes) -> str:
    counts = Counter(found.outcome for found in outcomes.values())
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


async def judge(suite: Suite, places: Sequence[Address]) -> None:
    """Run the suite at all places, of which the first is the engine itself. Fails for what only a
    proxy lets fail."""
    rows = allowed(suite.name)
    direct, *others = places
    directly = await run(suite, direct)
    print(f"\n{suite.name}, {direct.name}: {figures(directly)}")
    assert passed(directly), f"nothing passes directly: {figures(directly)}"
    problems = []
    for place in others:
        through = await run(suite, place)
        print(_summary(suite, place, rows, directly=directly, through=through))
        found = suspects(directly, through, rows)
        differing = await confirmed(suite, direct, place, found)
        print(f"  passed when repeated: {', '.join(sorted(set(found) - set(differing))) or '-'}")
        problems += [
            f"{case}: passes directly, and fails through {place.name}:\n{outcome.text}"
            for case, outcome in differing.items()
        ]

    assert not problems, "\n".join(problems)


def _summary(
    suite: Suite,
    place: Address,
    rows: Sequence[Allowed],
    *,
    directly: Outcomes,
    through: Outcomes,
) -> str:
    only_directly = passed(directly) - passed(through)
    without_row = suspects(directly, through, rows)
    lines = (
        f"{suite.name}, {place.name}: {figures(through)}",
        f"allowed to differ: {len(only_directly) - len(without_row)}; others: {len(without_row)}",
        f"passed only here: {', '.join(sorted(passed(through) - passed(directly))) or '-'}",
        f"rows without a case: {[row.cases for row in unused(directly, through, rows)]}",
    )
    named = (f"  {case}: {through[case].text[-300:]}" for case in without_row if case in through)
    return "\n  ".join((*lines, *named))
