"""Figures on how readable code is (``python -m tools.house [--anchors] [DIR ...]``), as a table
with a column for each directory.

The default directory is src/moorage. ``--anchors`` adds code bases that are known to read well,
installed from PyPI into build/anchors. Tests, generated code and migrations are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
ANCHORS = {
    "h11": "h11==0.16.0",
    "httpcore": "httpcore==1.0.9",
    "starlette": "starlette==0.48.0",
    "kopf": "kopf==1.38.0",
    "mitmproxy": "mitmproxy==11.0.2",
}
# Only mitmproxy's proxy layers, because the rest is an application with a console.
PACKAGES = {"mitmproxy": "mitmproxy/proxy"}
LEFT_OUT = (
    "/tests/",
    "/test_",
    "_pb2",
    "/migrations/versions/",
    "/vendor/",
    "/_vendor/",
    "/contrib/",
)
LONG_FUNCTION = 10
MANY_ARGUMENTS = 5


@dataclass
class Figures:
    """Counts over one directory's files. Lists contain a number for each file, function or line."""

    lines: int = 0
    code_lines: int = 0
    comments: int = 0
    listed_assignments: int = 0
    several_attributes: int = 0
    calls: int = 0
    long_calls: int = 0
    loops_over_one: int = 0
    by_hand: int = 0
    blank_in_functions: int = 0
    lines_in_functions: int = 0
    file_lengths: list[int] = field(default_factory=list)
    function_lengths: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def add(self, text: str) -> None:
        lines = text.splitlines()
        self.lines += len(lines)
        self.file_lengths.append(len(lines))
        self.widths += [len(line) for line in lines if line.strip()]
        self.by_hand += text.count("# fmt: skip")
        self._add_comments(text, lines)
        for node in ast.walk(ast.parse(text)):
            self._add_node(node, lines)

    def _add_comments(self, text: str, lines: list[str]) -> None:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [token for token in tokens if token.type == tokenize.COMMENT]
        whole = sum(1 for token in comments if not token.line[: token.start[1]].strip())
        self.comments += len(comments)
        self.code_lines += sum(1 for line in lines if line.strip()) - whole

    def _add_node(self, node: ast.AST, lines: list[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._add_function(node, lines)
        elif isinstance(node, ast.Call):
            self.calls += 1
            is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
            self.long_calls += len(node.args) >= MANY_ARGUMENTS and not is_open
        elif isinstance(node, ast.Assign):
            self._add_assignment(node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self.loops_over_one += isinstance(node.target, ast.Name) and node.target.id == "one"

    def _add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> None:
        body = lines[node.lineno - 1 : node.end_lineno]
        self.function_lengths.append(len(body))
        if len(body) >= LONG_FUNCTION:
            self.lines_in_functions += len(body)
            self.blank_in_functions += sum(1 for line in body if not line.strip())

    def _add_assignment(self, node: ast.Assign) -> None:
        first = node.targets[0]
        listed = isinstance(first, ast.Tuple) and isinstance(node.value, ast.Tuple)
        self.listed_assignments += listed
        targets = first.elts if isinstance(first, ast.Tuple) and listed else node.targets
        attributes = [target for target in targets if isinstance(target, ast.Attribute)]
        self.several_attributes += len(attributes) > 1

    def rows(self) -> Iterator[tuple[str, str]]:
        """The figures as text, by name."""
        yield "lines", f"{self.lines:,}"
        yield "lines of code", f"{self.code_lines:,}"
        yield "file, median / p90 / longest", _spread(self.file_lengths, longest=True)
        yield "function, median / p90", _spread(self.function_lengths)
        yield "width of a line, p90", str(_quantile(self.widths, 0.9))
        yield "assignments of lists, per 1,000 lines", _per(self.listed_assignments, self.lines)
        yield "statements that set several attributes", str(self.several_attributes)
        yield "calls with 5 and more positional, per 1,000", _per(self.long_calls, self.calls)
        blank = 100 * self.blank_in_functions / max(1, self.lines_in_functions)
        yield "blank lines in functions from 10 lines, %", f"{blank:.1f}"
        yield "comments per 100 lines of code", f"{100 * self.comments / self.code_lines:.1f}"
        yield "loops over `one`", str(self.loops_over_one)
        yield "lines laid out by hand", str(self.by_hand)


def _quantile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def _spread(values: list[int], *, longest: bool = False) -> str:
    shown = [_quantile(values, 0.5), _quantile(values, 0.9)]
    if longest:
        shown.append(max(values, default=0))
    return " / ".join(map(str, shown))


def _per(count: int, of: int) -> str:
    return f"{1000 * count / max(1, of):.1f}"


def measure(directory: Path) -> Figures:
    figures = Figures()
    for path in sorted(directory.rglob("*.py")):
        if not any(part in f"/{path.relative_to(directory)}" for part in LEFT_OUT):
            figures.add(path.read_text(encoding="utf-8"))
    return figures


def anchors() -> dict[str, Path]:
    """The directories of the anchors, which are installed if necessary."""
    found = {}
    uv = subprocess.run([ROOT / "tools" / "uv"], stdout=subprocess.PIPE, text=True, check=True)
    for name, requirement in ANCHORS.items():
        target = ROOT / "build" / "anchors" / requirement
        if not target.exists():
            command = [uv.stdout.strip(), "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*command, "--target", target, requirement], check=True)
        found[name] = target / PACKAGES.get(name, name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.house", description=__doc__)
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--anchors", action="store_true", help="beside code that reads well")
    arguments = parser.parse_args()
    directories = arguments.directories or [ROOT / "src" / "moorage"]
    columns = {str(path): measure(path) for path in directories}
    if arguments.anchors:
        columns |= {name: measure(path) for name, path in anchors().items()}
    if empty := [name for name, figures in columns.items() if not figures.lines]:
        parser.error(f"no Python in {', '.join(empty)}: name directories of source code")
    names = [Path(name).name for name in columns]
    print(f"| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    tables = [list(figures.rows()) for figures in columns.values()]
    for cells in zip(*tables, strict=True):
        print(f"| {cells[0][0]} | {' | '.join(value for _, value in cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
