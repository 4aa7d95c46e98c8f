"""Checks a change and everything that imports it (``python -m tools.check_changed``).

Runs ruff on the changed files, mypy on everything (its cache makes that seconds), and the test
files whose imports lead to a changed file, as the gate runs them: without slow cases, and without
those that need a Debian package. A changed file that is not Python, such as an SQL statement,
counts as a change to the Python files that name it. Exits with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.gate.__main__ import Git, changed_paths
from tools.gate.steps import Extent, Kind, Step, read_steps

ROOT = Path(__file__).parents[1]
FOLDERS = ("src/moorage", "tests", "benchmarks", "tools", "docs")
Graph = Mapping[str, Collection[str]]
"""Which files each file imports. Paths are relative to the repository."""
Statements = Mapping[str, Collection[str]]
"""The names of the statements in changed files of SQL."""

# Modules that import what their folder has, without naming it.
WALKED = {"src/moorage/manager/api/routes.py": "src/moorage/manager/api/"}


def module_names(path: str) -> list[str]:
    """The names under which a file can be imported: ``moorage.a.b``, ``tests.a.b``. A test also
    imports the modules next to it by their bare names."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[0] == "src":
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]

    names = [".".join(parts)]
    if path.startswith(("tests/", "benchmarks/", "docs/")):
        names.append(parts[-1])

    return names


def imported_names(source: str, package: str) -> set[str]:
    """The names of the modules that the source imports, and the names imported from them.
    ``package`` is the file's package, for relative imports. Imports inside functions count, imports
    only for types do not."""
    return _imported(ast.parse(source).body, package)


def _imported(nodes: Iterable[ast.AST], package: str) -> set[str]:
    names: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                above = parents[: len(parents) - node.level + 1]
                base = ".".join([*above, base] if base else above)

            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
        elif not isinstance(node, ast.expr):
            waiting += ast.iter_child_nodes(node)

    return names


@dataclass(frozen=True)
class Fixture:
    """A fixture in a ``conftest.py``: what it imports when it is created, and the words in its
    source, including the fixtures that it uses. ``always``: every test below uses it."""

    imports: frozenset[str]
    words: frozenset[str]
    always: bool


def fixtures_of(source: str, package: str) -> tuple[set[str], dict[str, Fixture]]:
    """The imports of a ``conftest.py`` itself, and its functions, whose imports count for the tests
    that use them."""
    own: list[ast.AST] = []
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.unparse(node)
            always = node.name.startswith("pytest_") or "autouse=True" in text
            found[node.name] = Fixture(frozenset(_imported([node], package)), _words(text), always)
        else:
            own.append(node)

    return _imported(own, package), found


def _words(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", source))


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The import graph of these files. A test imports the ``conftest.py`` in its folder and in the
    folders above, and everything that the fixtures it names import."""
    files: dict[str, set[str]] = {}
    for path in sources:
        for name in module_names(path):
            files.setdefault(name, set()).add(path)

    graph: dict[str, set[str]] = {}
    fixtures: dict[str, dict[str, Fixture]] = {}
    for path, source in sources.items():
        [dotted, *_] = module_names(path)
        package = dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0]
        if Path(path).name == "conftest.py":
            names, fixtures[path] = fixtures_of(source, package)
        else:
            names = imported_names(source, package)

        graph[path] = {found for name in names for found in _files_of(name, path, files)}
        if path in WALKED:
            graph[path] |= {found for found in sources if found.startswith(WALKED[path])}

    for path, source in sources.items():
        if not path.startswith("tests/"):
            continue

        above = [str(folder / "conftest.py") for folder in Path(path).parents]
        above = [conftest for conftest in above if conftest in fixtures]
        graph[path].update(above)

        if Path(path).name.startswith("test_"):
            offered = [(conftest, name) for conftest in above for name in fixtures[conftest]]
            for conftest, name in _asked_for(offered, fixtures, _words(source)):
                for imported in fixtures[conftest][name].imports:
                    graph[path] |= _files_of(imported, conftest, files)

    return {path: imports - {path} for path, imports in graph.items()}


def _asked_for(
    offered: Iterable[tuple[str, str]],
    fixtures: Mapping[str, Mapping[str, Fixture]],
    words: Collection[str],
) -> list[tuple[str, str]]:
    """The fixtures that a test names, those that every test uses, and those that these fixtures
    name."""
    left = list(offered)
    words = set(words)
    asked: list[tuple[str, str]] = []
    while True:
        more = [(path, name) for path, name in left if name in words or fixtures[path][name].always]
        if not more:
            return asked

        asked += more
        left = [fixture for fixture in left if fixture not in more]
        for path, name in more:
            words |= fixtures[path][name].words


def _files_of(name: str, importer: str, files: Mapping[str, Collection[str]]) -> set[str]:
    """The files that a name refers to. A bare name refers to a module in the same folder, or to a
    package."""
    found = files.get(name, ())
    if "." in name or len(found) == 1:
        return set(found)
    folder = Path(importer).parent
    return {path for path in found if Path(path).parent == folder}


def reached(graph: Graph, changed: Collection[str]) -> set[str]:
    """The files that import a changed one, directly or not, and the changed ones themselves."""
    importers: dict[str, set[str]] = {}
    for path, imports in graph.items():
        for imported in imports:
            importers.setdefault(imported, set()).add(path)

    found = set(changed)
    waiting = list(changed)
    while waiting:
        for path in importers.get(waiting.pop(), ()):
            if path not in found:
                found.add(path)
                waiting.append(path)

    return found


def named_by(path: str, sources: Mapping[str, str], statements: Statements) -> set[str]:
    """The Python files that name a file that is not Python, or one of the statements in it."""
    names = statements.get(path) or [Path(path).name]
    return {source for source, text in sources.items() if any(name in text for name in names)}


def statements_in(path: Path) -> list[str]:
    """The names of the statements in a file of SQL."""
    return re.findall(r"^-- name: (\w+)$", path.read_text(), re.MULTILINE) or [path.stem]


def picked_tests(
    changed: Iterable[str], sources: Mapping[str, str], graph: Graph, statements: Statements
) -> tuple[list[str], list[str]]:
    """The test files that a change requires, and all test files."""
    start: set[str] = set()
    for path in changed:
        start |= {path} if path in sources else named_by(path, sources, statements)
    tests = sorted(path for path in sources if Path(path).name.startswith("test_"))
    found = reached(graph, start)
    return [path for path in tests if path in found], tests


def commands(picked: Iterable[str], steps: Iterable[Step]) -> list[list[str]]:
    """A pytest command for each step that runs everywhere and includes some of these files."""
    left = list(picked)
    result = []
    for step in steps:
        if step.kind not in (Kind.CHECK, Kind.TEST, Kind.TURN) or not step.tests:
            continue

        own = [
            path for path in left if path.startswith(tuple(f"{folder}/" for folder in step.tests))
        ]
        if not own:
            continue

        left = [path for path in left if path not in own]
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        if step.workers and len(own) > 1:
            words += ["-n", str(step.workers), "--dist", step.distribution]

        result.append([*words, "-m", step.expression(Extent.GATE), *own])

    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.check_changed", description=__doc__)
    parser.add_argument(
        "--base", default="", help="commit since which changes count (default: origin/main)"
    )
    parser.add_argument("--list", action="store_true", help="print the test files, and run nothing")
    arguments = parser.parse_args()
    changed = [path for path in changed_paths(Git(ROOT), arguments.base) if (ROOT / path).exists()]
    sources = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "node_modules" not in path.parts:
                sources[str(path.relative_to(ROOT))] = path.read_text()

    statements = {path: statements_in(ROOT / path) for path in changed if path.endswith(".sql")}
    picked, tests = picked_tests(changed, sources, import_graph(sources), statements)
    share = 100 * len(picked) / max(1, len(tests))
    print(
        f"{len(changed)} changed files: {len(picked)} of {len(tests)} test files ({share:.0f} %)",
        flush=True,
    )
    if arguments.list:
        print("\n".join(picked))
        return 0

    python = [path for path in changed if path.endswith(".py")]
    ruff = str(Path(sys.executable).with_name("ruff"))
    lines = [[ruff, "format", "--check", *python], [ruff, "check", *python]] if python else []
    lines.append([str(Path(sys.executable).with_name("mypy"))])
    lines += commands(picked, read_steps(ROOT / "tests" / "steps.toml"))
    failed = []
    for words in lines:
        print("$ " + shlex.join(words)[:200], flush=True)
        # 5 means that every case in these files is slow, or needs something that is missing here.
        if subprocess.run(words, cwd=ROOT, check=False).returncode not in (0, 5):
            failed.append(words)

    for words in failed:
        print("FAILED " + shlex.join(words)[:200])

    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
