"""Every command line, setting and REST path that a document names exists, also in the reference
pages.

Nothing runs here. ``tests/e2e/test_documents.py`` runs the blocks, and lists those that cannot run.
"""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.documents import ROOT, SHELLS, blocks, moorage_commands, pages, prose, spans

import moorage
from moorage.cli.app import full_root
from moorage.cli.parse import options as parse_options
from moorage.common.config.loader import SECRETS
from moorage.common.config.settings import Settings
from moorage.common.model.errors import MoorageError
from moorage.common.model.features import Feature
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.http.problem_types import TYPES
from moorage.manager.api.routes import ROUTES
from moorage.sdk import Client

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
COLUMNS = 100
FILES = ("json", "proto")  # such as agent.json
LANGUAGES = {*SHELLS, "toml", "yaml", "python", "console", "text", "mermaid", "json", "typescript"}
# OpenAI and Anthropic APIs, which the proxy serves.
ELSEWHERE = re.compile(
    r"/v1/(chat|completions|embeddings|models|messages|responses|realtime|audio|rerank)"
)


@cache
def root() -> Any:
    """The root command with every module. A separate process has only the modules of one
    command."""
    import moorage.__main__  # noqa: F401 - it adds all commands

    return full_root()


def parse(arguments: list[str]) -> None:
    """Parse a command line as the program would, down to the command."""
    context = root().make_context("moorage", list(arguments))
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def problem_of(arguments: list[str]) -> str:
    """Why a command line does not parse, or "" if it does. The reader's files need not exist
    here."""
    try:
        parse(arguments)
    except typer.Exit:
        return ""  # such as --help
    except (typer.TyperException, MoorageError) as error:
        said = str(getattr(error, "message", error))
        return "" if "does not exist" in said else said
    return ""


def unknown_words(span: str) -> Iterator[str]:
    """Commands and options in a code span that do not exist. A span may leave out values and
    arguments."""
    try:
        words = shlex.split(span.replace("…", " ").replace("[", " ").replace("]", " "))[1:]
    except ValueError:
        return  # half of a quotation

    command = root()
    options = set(_options(root()))
    for word in words:
        if word == "--":
            return

        if word.startswith("-"):
            if word.partition("=")[0] not in options and word not in ("-h", "--help"):
                yield word
        elif hasattr(command, "get_command"):
            inner = command.get_command(None, word)
            if inner is None and not (
                word.isupper() or command.invoke_without_command or "|" in word
            ):
                yield word

            if inner is not None:
                command = inner
                options |= {*_options(command)}


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)


@PAGES
def test_every_block_says_what_it_is(page: Path) -> None:
    assert [f"{one.page}:{one.line} {one.language}" for one in blocks(page)
            if one.language not in LANGUAGES] == []  # fmt: skip
    for one in blocks(page):
        if one.language == "toml":
            tomllib.loads(one.text)
        elif one.language == "yaml":
            yaml.safe_load(one.text)
        elif one.language == "python":
            compile(
                one.text, f"{one.page}:{one.line}", "exec", flags=0x2000
            )  # await at the top level


@pytest.mark.parametrize(
    "page",
    # The skill is generated, with one line for each tool.
    [page for page in (*pages(), *DECISIONS) if page.stem != "SKILL"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_prose_has_at_most_100_columns(page: Path) -> None:
    """This makes a changed sentence visible as such. Tables, pictures and long links cannot be
    wrapped."""
    lines = [
        (number, line)
        for number, line in prose(page)
        if len(line) > COLUMNS and not line.startswith(("|", "!["))
    ]
    assert [number for number, line in lines if max(map(len, words(line))) < len(line) - 4] == []


def words(line: str) -> list[str]:
    """The parts of a line between which it can be broken."""
    return re.findall(r"(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|\S)+", line)


def test_readme_is_plain_markdown() -> None:
    """It is also the package description: package indexes draw no diagrams, and drop HTML."""
    readme = ROOT / "README.md"
    assert {one.language for one in blocks(readme)} <= {*SHELLS}
    assert re.findall(r"^<.*", readme.read_text(), re.MULTILINE) == []


@PAGES
def test_every_command_line_parses(page: Path) -> None:
    wrong = []
    for one in blocks(page):
        if one.language not in SHELLS and one.language != "console":
            continue

        calls = [line[2:] for line in one.text.splitlines() if line.startswith("$ ")]
        text = "\n".join(calls) if one.language == "console" else one.text
        for arguments in moorage_commands(text):
            if problem := problem_of(arguments):
                wrong.append(f"{one.page}:{one.line} moorage {shlex.join(arguments)}: {problem}")

    assert wrong == []


@PAGES
def test_every_command_in_a_sentence_exists(page: Path) -> None:
    assert unknown_commands(page) == []


def unknown_commands(page: Path) -> list[Any]:
    named = [(line, span) for line, span in spans(page) if span.startswith("moorage ")]
    named += [(line, f"moorage {after}") for line, after in enumerated_commands(page)]
    return [(line, span, bad) for line, span in named if (bad := [*unknown_words(span)])]


def enumerated_commands(page: Path) -> Iterator[tuple[int, str]]:
    """Commands of an enumeration whose first one is written in full: "`moorage exec`, `logs`"."""
    for line, text in prose(page):
        for first, rest in re.findall(
            r"`moorage ([a-z-]+)`((?:(?:, | and | or |/)`[a-z][a-z-]*`)+)", text
        ):
            nouns = root().get_command(None, first)
            for word in re.findall(r"`([a-z-]+)`", rest):
                is_verb = hasattr(nouns, "commands") and word in nouns.commands
                yield line, f"{first} {word}" if is_verb else word


def test_options_of_groups_in_sentences_are_valid() -> None:
    """The command line leaves their validation to the manager."""
    checked = 0
    for page in pages():
        texts = [span for _, span in spans(page)] + [block.text for block in blocks(page)]
        for text in texts:
            text = text.replace("\\\n", " ")
            for words in re.findall(r"moorage groups (?:set|create) [^\n…#]+", text):
                given = [
                    word
                    for word in shlex.split(words, comments=True)[4:]
                    if re.match(r"[a-z_.]+=.", word)
                ]
                options = parse_options(given, GroupOptions, GroupOptions().model_dump(mode="json"))
                GroupOptions.model_validate(options)
                checked += len(given)

    assert checked > 20


@PAGES
def test_every_setting_exists(page: Path) -> None:
    assert unknown_settings(page) == []


def unknown_settings(page: Path) -> list[tuple[int, str]]:
    named = [(line, span.partition("=")[0].strip()) for line, span in spans(page)]
    for one in blocks(page):
        if one.language == "toml":
            named += [(one.line, name) for name in _toml_names(tomllib.loads(one.text))]

        named += [
            (one.line, _of_variable(v)) for v in re.findall(r"MOORAGE_[A-Z]+__[A-Z_]+", one.text)
        ]

    named += [(line, _of_variable(span)) for line, span in spans(page)]
    known = settings()
    sections = {*Settings.model_fields}
    wrong: list[tuple[int, str]] = []
    for line, name in named:
        section, dot, rest = name.partition(".")
        if dot and section in sections and re.fullmatch(r"[a-z_.]*[a-z]", rest):
            name_known = name in known or rest.startswith(("sites.", "plugins.")) or rest in FILES
            wrong += [] if name_known else [(line, name)]

    return wrong


def _of_variable(text: str) -> str:
    found = re.match(r"MOORAGE_([A-Z]+)__([A-Z_]+)", text)
    return f"{found[1]}.{found[2]}".lower() if found else ""


def _toml_names(table: dict[str, Any]) -> Iterator[str]:
    for section, values in table.items():
        if section in Settings.model_fields:
            yield from (f"{section}.{name}" for name in values if name not in ("sites", "plugins"))


@cache
def settings() -> set[str]:
    """Each name, and for a secret also the name of its file setting."""
    found = {
        f"{section}.{name}"
        for section in Settings.model_fields
        for name in type(getattr(Settings(), section)).model_fields
    }
    return found | {f"{name}_file" for name in SECRETS}


@PAGES
def test_every_rest_path_exists(page: Path) -> None:
    assert unknown_paths(page) == []


def unknown_paths(page: Path) -> list[tuple[int, str, str]]:
    wrong = []
    for line, span in spans(page):
        for method, path, query in re.findall(
            r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[^\s?\[]*)\??(\S*)", span
        ):
            if problem := problem_of_route(method, path.rstrip("/…"), query):
                wrong.append((line, span, problem))
    return wrong


@cache
def routes() -> dict[str, Any]:
    paths: dict[str, Any] = describe(ROUTES, moorage.__version__)["paths"]
    return paths


def problem_of_route(method: str, path: str, query: str) -> str:
    """What is wrong with a route in a document, or "" if nothing is. Placeholders are ``{ref}`` or
    ``NAME``."""
    if ELSEWHERE.match(path):
        return ""

    for known, operations in routes().items():
        pattern = re.sub(r"\{[^}]*\}", r"[^/]+", known)
        if re.fullmatch(pattern, path) and method.lower() in operations:
            operation = operations[method.lower()]
            given = {
                one["name"] for one in operation.get("parameters", ()) if one.get("in") == "query"
            }
            unknown = [n for n in re.findall(r"(?:^|&)(\w+)=", query) if n not in given]
            return f"unknown parameters: {unknown}" if unknown else ""

    return "no such route"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages that docs/reference.py writes."""
    folder = tmp_path_factory.mktemp("reference")
    runpy.run_path(str(ROOT / "docs" / "reference.py"))["write"](folder)
    return folder


def test_the_reference_names_what_exists(reference: Path) -> None:
    """The next steps of reasons and problems, and the docstrings of settings."""
    wrong = {
        page.name: found
        for page in reference.glob("*.md")
        if (found := [*unknown_commands(page), *unknown_settings(page), *unknown_paths(page)])
    }
    assert wrong == {}
    named = [
        span for _, span in spans(reference / "session-states.md") if span.startswith("moorage ")
    ]
    assert len(named) > 5


def client_calls() -> list[str]:
    """The calls of the Python client, in the order of its resources and of their sources."""
    client = Client("http://127.0.0.1:1")
    return [
        f"{name}.{call}"
        for name in sorted(Client.__annotations__)
        for call in vars(type(getattr(client, name)))
        if not call.startswith("_")
    ]


def test_the_reference_is_complete(reference: Path) -> None:
    def named(page: str, pattern: str) -> list[str]:
        return re.findall(pattern, (reference / f"{page}.md").read_text(), re.MULTILINE)

    diagram = blocks(reference / "session-states.md")[0].text
    assert {*re.findall(r"\b[A-Z]{5,}\b", diagram)} == set(Status)
    assert sorted(named("session-states", r"^\| `([a-z-]+)` \|")) == sorted(
        one for one in Reason if one
    )
    assert named("session-types", r"^\| ([a-z-]+) \|")[1:] == list(Feature)
    assert named("problems", r"^## (.+)$") == list(TYPES)

    # The file of this secret is a separate setting, because it is reread.
    files = {f"{name}_file" for name in SECRETS} - {"agent.heappe_secret_file"}
    assert {*named("settings", r"^\| `([a-z_.0-9]+)` \|")} == settings() - files
    assert named("rest", r"^### (POST /v1/sessions)$") == ["POST /v1/sessions"]
    assert {"moorage run", "moorage agents uncordon"} <= {*named("commands", r"^## (.+)$")}
    assert named("python-client", r"^### (.+)$") == client_calls()
    assert "moorage_build_info" in named("metrics", r"^\| `([a-z_0-9]+)` \|")
    overview = (ROOT / "docs" / "reference.md").read_text()
    headings = {
        one.lower().replace(" ", "-") for one in re.findall(r"^## (.+)$", overview, re.MULTILINE)
    }
    assert headings == {page.stem for page in reference.glob("*.md")}


def test_what_is_not_described_is_refused() -> None:
    described = runpy.run_path(str(ROOT / "docs" / "reference.py"))["described"]
    with pytest.raises(ValueError, match=r"manager\.dsn has no description"):
        described("manager.dsn", " ")


def test_the_skill_is_what_the_generator_makes() -> None:
    """It is committed: people copy it without an installation."""
    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))["agent_skill"]()
    assert (ROOT / "docs/skill/moorage/SKILL.md").read_text() == made, "run `make docs`"
