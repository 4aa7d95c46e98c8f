"""Runs of a suite against one address, and the comparison of two of them."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suites.sources import ROOT

PLUGINS = ROOT / "tests" / "suites" / "plugins"
ALLOWED = ROOT / "tests" / "suites" / "allowed.toml"
PASSED = "passed"
# How often a case that fails through the proxy runs again, alone: weights and timing are random.
REPEATS = 3


@dataclass(frozen=True)
class Suite:
    """``python``: of the environment with what the tests import. ``plugin``: what makes them use
    an address. ``paths``: of the tests. ``options``: of pytest. ``packages``: folders with what
    ``python`` lacks."""

    name: str
    path: Path
    python: Path
    plugin: str
    paths: Sequence[str]
    options: Sequence[str]
    environment: Mapping[str, str]
    packages: Sequence[Path] = ()


@dataclass(frozen=True)
class Address:
    name: str
    url: str
    key: str


@dataclass(frozen=True)
class Outcome:
    outcome: str
    text: str


Outcomes = dict[str, Outcome]


@dataclass(frozen=True)
class Allowed:
    """Cases that may fail through the proxy although they pass directly, and why. ``cases``: a
    pattern of a shell."""

    cases: str
    reason: str

    def allows(self, case: str) -> bool:
        # Brackets of parameters are no set of characters.
        return fnmatch.fnmatchcase(case, self.cases.replace("[", "[[]"))


def allowed(suite: str) -> list[Allowed]:
    rows = tomllib.loads(ALLOWED.read_text(encoding="utf-8")).get(suite, [])
    return [Allowed(**row) for row in rows]


async def run(suite: Suite, address: Address, cases: Collection[str] = ()) -> Outcomes:
    """Run the suite, or these cases."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "outcomes")
        command = (suite.python, "-m", "pytest", "-p", "outcomes", "-p", suite.plugin)
        # Native tracebacks: CPython 3.11 fails now and then to parse the source for others
        # ("AST constructor recursion depth mismatch").
        process = await asyncio.create_subprocess_exec(
            *command,
            *("-p", "no:cacheprovider", "-q", "--no-header", "--tb=native"),
            *suite.options,
            *(cases or suite.paths),
            cwd=suite.path,
            env=_environment(suite, address, written),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

        # 1: some cases failed; others: no case ran.
        assert process.returncode in (0, 1), output.decode()[-3000:]
        lines = map(json.loads, written.read_text(encoding="utf-8").splitlines())
        return {line["case"]: Outcome(line["outcome"], line["text"]) for line in lines}


def _environment(suite: Suite, address: Address, written: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(written.parent),
        "PYTHONPATH": os.pathsep.join(map(str, (PLUGINS, *suite.packages))),
        "SUITE_OUTCOMES": str(written),
        "SUITE_URL": address.url,
        "SUITE_KEY": address.key,
        **suite.environment,
    }


def passed(outcomes: Outcomes) -> set[str]:
    return {case for case, found in outcomes.items() if found.outcome == PASSED}


def suspects(directly: Outcomes, through: Outcomes, rows: Sequence[Allowed]) -> list[str]:
    """Cases that pass directly and not through the proxy, for which no row allows it."""
    differing = passed(directly) - passed(through)
    return sorted(case for case in differing if not any(row.allows(case) for row in rows))


def unused(directly: Outcomes, through: Outcomes, rows: Sequence[Allowed]) -> list[Allowed]:
    """Rows without a case that passes directly and not through the proxy."""
    differing = passed(directly) - passed(through)
    return [row for row in rows if not any(map(row.allows, differing))]


async def confirmed(
    suite: Suite, direct: Address, proxied: Address, cases: Sequence[str]
) -> Outcomes:
    """The cases that fail through the proxy in every repeat, and that pass directly again, with
    their last outcome through it."""
    left = list(cases)
    last: Outcomes = {}
    for _ in range(REPEATS):
        if not left:
            return {}
        again = await run(suite, proxied, left)
        last.update(again)
        left = [case for case in left if case not in passed(again)]

    repeated = passed(await run(suite, direct, left)) if left else set()
    return {case: last[case] for case in left if case in repeated}
