"""Tidiness: every file obeys every rule, and every rule can fail."""

from __future__ import annotations

import re
import subprocess
import tomllib
import warnings
from datetime import date
from pathlib import Path

import pytest
import rules as m

import moorage

ROOT = Path(__file__).resolve().parents[2]
SRC = "src/moorage/manager/some.py"
SQL = "src/moorage/manager/store/sessions/sql/some.sql"
VERSIONS = "src/moorage/manager/store/schema/migrations/versions"
# Files that a rule would reject because they are about its subject.
EXEMPT = {
    "unresolved": ("tests/tidy/",),
    "machine": ("tests/tidy/", "uv.lock", "LICENSE"),
}


HASH = "--hash=sha256:" + "0" * 64


def tracked() -> list[str]:
    """All files that are committed, or that could be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sorted(name for name in names if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for name in tracked():
        try:
            found[name] = (ROOT / name).read_text()
        except UnicodeDecodeError:  # an image
            continue
    assert len(found) > 20, "git lists hardly any file; is this a checkout?"
    return found


@pytest.fixture(scope="module")
def complaints(texts: dict[str, str]) -> dict[str, list[str]]:
    """Complaints by rule, file by file, so that each file is parsed once."""
    found: dict[str, list[str]] = {rule.__name__: [] for rule in m.RULES}
    for path, text in texts.items():
        for rule in m.RULES:
            if not path.startswith(EXEMPT.get(rule.__name__, ()) or "\0"):
                found[rule.__name__] += [f"{path}: {complaint}" for complaint in rule(path, text)]
    return found


@pytest.mark.xdist_group("tidy")  # for one calculation of the fixture
@pytest.mark.parametrize("rule", m.RULES, ids=lambda rule: rule.__name__)
def test_files_are_tidy(rule: m.Rule, complaints: dict[str, list[str]]) -> None:
    assert not complaints[rule.__name__], "\n" + "\n".join(complaints[rule.__name__])


def test_locks_agree(texts: dict[str, str]) -> None:
    assert m.lock_differences(texts["uv.lock"], texts["requirements.lock"]) == []


def test_long_files_are_named(texts: dict[str, str]) -> None:
    """This is a warning, not a limit. A file that is no longer long is removed from the list."""
    for found in m.long_files(texts, m.LONG_FILES):
        warnings.warn(found, stacklevel=1)
    long = "\n".join(m.long_files(texts, ()))
    assert [path for path in m.LONG_FILES if f"{path} has " not in long] == []


def test_long_files_are_found() -> None:
    long = "x = 1\n" * 501
    assert m.long_files({SRC: long}, ()) != []
    assert m.long_files({SRC: "x = 1\n" * 500, "a_pb2.py": long, "README.md": long}, ()) == []
    assert m.long_files({SRC: long}, [SRC]) == []


def test_calls_name_their_arguments(texts: dict[str, str]) -> None:
    assert m.long_calls(texts) == []


def test_long_calls_are_found() -> None:
    assert m.long_calls({SRC: "f(1, 2, 3, 4, 5)"}) != []
    assert m.long_calls({SRC: "self.f(1, 2, 3, 4, 5, six=6)"}) != []
    assert m.long_calls({SRC: "f(1, 2, 3, 4, five=5)", "tests/test_x.py": "f(1, 2, 3, 4, 5)"}) == []
    open_ended = "def f(*values): ...\n@lru_cache(9)\ndef g(a, b, c, d, e): ..."
    assert m.long_calls({SRC: f"{open_ended}\nf(1, 2, 3, 4, 5)\ng(1, 2, 3, 4, 5)"}) == []


def test_long_signatures_are_still_long(texts: dict[str, str]) -> None:
    """A function whose signature is no longer long is removed from the list."""
    for path, function in m.LONG_SIGNATURES:
        found = m.signatures("src/moorage/elsewhere.py", texts[path])
        assert any(f"{function} takes" in complaint for complaint in found), function


def test_test_file_names_are_unique(texts: dict[str, str]) -> None:
    assert m.duplicate_names(texts) == []


def test_version_is_in_the_changelog(texts: dict[str, str]) -> None:
    version = tomllib.loads(texts["pyproject.toml"])["project"]["version"]
    assert moorage.__version__ == version
    assert f"## [{version}]" in texts["CHANGELOG.md"]


_FRAGMENT = re.compile(r"changes/\+[a-z0-9-]+\.(added|changed|fixed|removed|security)\.md")


def test_fragments_of_the_changelog_have_names_that_towncrier_takes(texts: dict[str, str]) -> None:
    """It silently leaves out any other file."""
    kinds = tomllib.loads(texts["pyproject.toml"])["tool"]["towncrier"]["type"]
    assert all(_FRAGMENT.fullmatch(f"changes/+some-name.{kind['directory']}.md") for kind in kinds)
    fragments = [
        name for name in texts if name.startswith("changes/") and name != "changes/README.md"
    ]
    assert [
        name for name in fragments if not _FRAGMENT.fullmatch(name) or not texts[name].strip()
    ] == []


def test_exemptions_are_still_needed(texts: dict[str, str]) -> None:
    """A function that no longer catches every exception must be removed from the list."""
    for path, function in m.CATCH_ALL:
        complaints = m.catch_all(f"{path}.elsewhere.py", texts[path])
        assert any(f"{function} catches" in complaint for complaint in complaints), (
            f"{path}: {function}"
        )


def test_files_that_assign_from_outside_still_do(texts: dict[str, str]) -> None:
    for path, name in m.OUTSIDE:
        complaints = m.assigned_outside(f"{path}.elsewhere.py", texts[path])
        assert any(f" sets {name}." in complaint for complaint in complaints), f"{path}: {name}"


BAD = [
    (m.function_length, SRC, "def f():\n" + "    x = 1\n" * 80),
    (m.function_length, "tests/test_x.py", "async def f():\n" + "    x = 1\n" * 80),
    (m.paragraphs, SRC, "def f():\n" + "    x()\n" * 11),
    (m.paragraphs, SRC, 'async def f():\n    """A."""\n' + "    x()\n" * 11),
    (m.signatures, SRC, "def f(a, b, c, d, e): ..."),
    (m.signatures, "tests/test_x.py", "async def f(a, b, /, c, d, e=1): ..."),
    (m.signatures, SRC, "class A:\n    def f(self, a, b, c, d, e): ..."),
    (m.one_attribute, SRC, "self.a, self.b = 1, 2"),
    (m.one_attribute, SRC, "self.a, before = True, self.c"),
    (m.one_attribute, SRC, "self.a = self.b = 0.0"),
    (m.one_attribute, SRC, "other = self.b = f()"),
    (m.one_attribute, "tests/test_x.py", "thing.a, thing.b = 1, 2"),
    (m.assigned_outside, SRC, "load.on_refused = proxies.refuse"),
    (m.assigned_outside, SRC, "self._links.proxies += 1"),
    (m.assigned_outside, SRC, "before, thing.a = thing.a, None"),
    (m.vague_names, SRC, "for one in rows: ..."),
    (m.vague_names, SRC, "x = [one.id for one in rows]"),
    (m.vague_names, SRC, "x = max(rows, key=lambda one: one.id)"),
    (m.vague_names, SRC, "def f(*, one=False): ..."),
    (m.vague_names, SRC, "async def one(job): ..."),
    (m.vague_names, SRC, "match x:\n    case {'a': one}: ..."),
    (m.refused_field, "src/moorage/manager/a.py", "raise InvalidInput('no', next_step='x')"),
    (m.width, SRC, f"x = '{'y' * 95}'"),
    (m.width, SQL, f"SELECT '{'y' * 95}'"),
    (m.statement_files, SQL, "-- name: a\nSELECT 1\n\n-- name: b\nSELECT" + "\n  1," * 16),
    (m.layout_by_hand, SRC, "X = (1, 2)  # fmt: skip"),
    (m.layout_by_hand, SRC, "# fmt: off"),
    (m.exports, "src/moorage/p/__init__.py", f"__all__ = {[f'n{i}' for i in range(11)]}"),
    (
        m.exports,
        "src/moorage/p/__init__.py",
        f"from x import {', '.join(f'n{i}' for i in range(11))}",
    ),
    (m.file_name, "src/moorage/manager/utils.py", ""),
    (m.file_name, "src/moorage/helpers/x.py", ""),
    (m.file_name, "src/moorage/manager/v2/x.sql", ""),
    (m.catch_all, SRC, "try:\n    f()\nexcept Exception:\n    pass"),
    (
        m.catch_all,
        SRC,
        "try:\n    f()\nexcept (ValueError, BaseException) as e:\n    raise X from e",
    ),
    (m.catch_all, SRC, "def g():\n    try:\n        f()\n    except:\n        log()"),
    (m.tasks, SRC, "asyncio.create_task(f())"),
    (m.tasks, SRC, "group.create_task(f())"),
    (m.tasks, SRC, "async with asyncio.TaskGroup() as group: pass"),
    (m.detached, SRC, "spawn('name', f())"),
    (m.detached, SRC, "if x:\n    tasks.spawn('name', f())"),
    (m.clock, SRC, "t = time.time()"),
    (m.clock, SRC, "from time import monotonic"),
    (m.clock, SRC, "t = datetime.datetime.now(UTC)"),
    (m.clock, SRC, "t = datetime.now()"),
    (m.clock, SRC, "x = random.choice(xs)"),
    (m.clock, SRC, "x = uuid.uuid4()"),
    (m.clock, SRC, "x = secrets.token_hex()"),
    (m.mocks, "tests/unit/test_x.py", "from unittest.mock import patch"),
    (m.mocks, "tests/unit/test_x.py", "from unittest import mock"),
    (m.mocks, "tests/unit/test_x.py", "import unittest.mock"),
    (m.unresolved, SRC, "x = 1  # TODO: better"),
    (m.unresolved, "README.md", "FIXME"),
    (m.machine, "README.md", "look in /root/thing"),
    (m.machine, "deploy/x.yaml", "url: http://db.internal/"),
    (m.machine, "deploy/x.yaml", "address: 10.1.2.3"),
    (m.machine, "tests/test_x.py", "HOST = '192.168.0.7'"),
    (m.machine, "pip.conf", "extra-index-url = https://somewhere/simple"),
    (m.full_match, SRC, '_NAME = re.compile(r"^[a-z]+$")'),
    (m.runtime_names, SRC, 'if spec.runtime == "docker": pass'),
    (m.runtime_names, SRC, 'if spec.runtime in ("slurm", "heappe"): pass'),
    (m.runtime_names, SRC, 'runtime: Literal["process"] = default'),
    (m.lock_hosts, "uv.lock", 'source = { registry = "https://mirror.example/simple" }'),
    (m.requirements, "requirements.lock", "--index-url https://x/\n"),
    (m.requirements, "requirements.lock", "a @ file:///tmp/a.whl\n"),
    (m.requirements, "requirements.lock", f"a>=1 {HASH}\n"),
    (m.requirements, "requirements.lock", "a==1\n"),
    (m.requirements, "deploy/x/requirements.txt", f"a==1 \\\n    {HASH}\nb==1\n"),
    (m.package_root, "src/moorage/join.py", ""),
    (m.docstring, SRC, '"""What an agent knows."""'),
    (m.docstring, SRC, "x = 1"),
    (m.json_casts, SQL, "SELECT (s.spec ->> 'lease_s')::float8"),
    (m.json_casts, SQL, "SELECT (a.grace ->> (s.spec ->> 'runtime'))::float8"),
    (m.json_casts, SQL, "SELECT (s.spec #>> '{cluster,size}')::int"),
    (m.json_casts, SQL, "SELECT (body #>> '{}')::jsonb"),
    (m.json_casts, SQL, "SELECT float8(inputs->'running')"),
    (m.json_casts, SQL, "SELECT CAST(s.spec ->> 'lease_s' AS float8)"),
    (m.json_casts, SQL, "SELECT e.value::bigint FROM jsonb_each_text($1) e"),
    (m.json_casts, SQL, "SELECT FROM jsonb_array_elements(s.files -> 'inputs')"),
    (m.json_casts, SQL, "SELECT FROM agents, jsonb_to_recordset(nodes) AS n(name text)"),
    (
        m.json_casts,
        "src/moorage/manager/store/some.py",
        "X = \"SELECT (s.spec ->> 'lease_s')::float8\"",
    ),
    (
        m.json_casts,
        f"{VERSIONS}/202701010000_x.py",
        "X = \"SELECT (s.spec ->> 'lease_s')::float8\"",
    ),
    (m.private_access, "tests/unit/test_x.py", "store._db.fetch()"),
    (m.private_access, "tests/unit/test_x.py", "from moorage.proxy.core.routes import _match"),
    (m.private_access, "tests/unit/test_x.py", "monkeypatch.setattr(plane, '_BODY_S', 1)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_every_rule_can_fail(rule: m.Rule, path: str, text: str) -> None:
    assert len(rule(path, text)) >= 1


def test_every_rule_has_a_failing_case() -> None:
    assert {rule for rule, _, _ in BAD} == set(m.RULES)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (m.function_length, SRC, "def f():\n" + "    x = 1\n" * 59),
        (m.paragraphs, SRC, "def f():\n" + "    x()\n" * 10),
        (m.paragraphs, SRC, "def f():\n" + "    x()\n" * 9 + "\n    x()\n    x()"),
        (m.paragraphs, SRC, "def f():\n    while x:\n" + "        x()\n" * 20),
        (m.paragraphs, SRC, "def f():\n" + "    x = 1\n" * 20),
        (m.paragraphs, SRC, "def __init__(self):\n" + "    x()\n" * 20),
        (m.signatures, SRC, "class A:\n    def f(self, a, b, c, d, *, e): ..."),
        (m.signatures, SRC, "@command(app)\ndef f(a, b, c, d, e): ..."),
        (m.signatures, SRC, "@lru_cache(maxsize=9)\ndef f(a, b, c, d, e): ..."),
        (m.signatures, "tests/x.py", "@pytest.fixture\ndef f(a, b, c, d, e): ..."),
        (m.exports, "src/moorage/p/__init__.py", "from x import a, b, c\n__all__ = ['a']"),
        (m.assigned_outside, SRC, "class Row:\n    seen: int = 0\n\nrow.seen += 1"),
        (m.assigned_outside, SRC, "self.a = 1\ncls.b = 2"),
        (m.assigned_outside, "tests/test_x.py", "thing.a = 1"),
        (m.vague_names, SRC, "for row in rows: x = row.one  # one of them"),
        (m.vague_names, "tests/test_x.py", "for one in rows: ..."),
        (m.refused_field, "src/moorage/manager/a.py", "raise InvalidInput('no', field='x')"),
        (m.refused_field, "src/moorage/cli/a.py", "raise InvalidInput('no')"),
        (m.file_name, "src/moorage/common/aio/tasks.py", ""),
        (m.catch_all, SRC, "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
        (m.catch_all, SRC, "try:\n    f()\nexcept ValueError:\n    pass"),
        (m.tasks, "src/moorage/common/aio/tasks.py", "loop.create_task(f())"),
        (m.detached, SRC, "task = spawn('name', f())\nawait cancel_and_wait(spawn('name', f()))"),
        (
            m.clock,
            SRC,
            "t = clock.now(); l = loop.time(); r = random.Random(7); secrets.compare_digest(a, b)",
        ),
        (m.clock, "src/moorage/common/aio/clock.py", "time.time()"),
        (m.mocks, "tests/unit/test_x.py", "monkeypatch.setenv('A', 'b')"),
        (
            m.machine,
            "README.md",
            "http://127.0.0.1:8700, 192.0.2.7, 0.0.0.0:8800, ~/.local/share, asyncio.internal()",
        ),
        (m.runtime_names, SRC, 'if RUNTIMES[spec.runtime].images: x = "a docker image"'),
        (m.runtime_names, "src/moorage/agent/runtimes/registry.py", 'name = "docker"'),
        (m.lock_hosts, "uv.lock", 'url = "https://files.pythonhosted.org/x"'),
        (
            m.requirements,
            "requirements.lock",
            f"a==1 \\\n    {HASH}\nb[c]==2.0 ; sys_platform == 'win32' \\\n    {HASH} \\\n    {HASH}\n",
        ),
        (m.requirements, "deploy/x/requirements.txt", f"# About it.\na==1 \\\n    {HASH}\n"),
        (m.package_root, "src/moorage/__main__.py", ""),
        (m.docstring, SRC, '"""Batch writer for reports."""'),
        (
            m.json_casts,
            SQL,
            "SELECT as_number(s.spec -> 'x')::numeric, (i.spec ->> 'x')::text, $1::jsonb",
        ),
        (
            m.json_casts,
            SQL,
            "SELECT FROM jsonb_each(as_object(x)), jsonb_array_elements($1::jsonb)",
        ),
        (
            m.json_casts,
            "src/moorage/manager/store/schema/functions/as_x.sql",
            "SELECT (value ->> 'lease_s')::float8",
        ),
        (m.private_access, "tests/unit/test_x.py", "self._x = row._replace(a=1)"),
        (m.statement_files, SQL, "SELECT" + "\n  1," * 16),
        (m.statement_files, SQL, "-- name: a\nSELECT 1\n\n-- name: b\nSELECT" + "\n  1," * 15),
    ],
)
def test_rules_accept_tidy_files(rule: m.Rule, path: str, text: str) -> None:
    assert rule(path, text) == []


def test_lock_differences_are_found() -> None:
    lock = '[[package]]\nname = "a"\nversion = "1"\n[[package]]\nname = "moorage"\nversion = "0"\n'
    assert m.lock_differences(lock, "a==1\n") == []
    assert m.lock_differences(lock, "a==2\n") != []
    assert m.lock_differences(lock, "") != []


def test_duplicate_names_are_found() -> None:
    twin = "tests/wire/test_x.py"
    assert m.duplicate_names(["tests/unit/test_x.py", twin]) != []
    assert m.duplicate_names(["tests/unit/test_x.py", twin, "tests/wire/__init__.py"]) == []


# Decision records have a number up to this one, and the decision date after it.
LAST_NUMBERED_DECISION = 53


def misnamed_decision(name: str, title: str) -> str:
    """What is wrong with a record's name or first line, or "" if nothing is."""
    if dated := re.fullmatch(r"(\d{4}-\d\d-\d\d)-[a-z][a-z0-9-]*\.md", name):
        date.fromisoformat(dated[1])
        return "" if re.match(r"# [A-Z]", title) else "the title is no heading"

    if numbered := re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", name):
        number = int(numbered[1])
        if number > LAST_NUMBERED_DECISION:
            return "name it by the date: YYYY-MM-DD-name.md"

        return "" if title.startswith(f"# {number}. ") else f"the title lacks the number {number}"

    return "name it by the date: YYYY-MM-DD-name.md"


def test_decision_records_are_named_by_date() -> None:
    records = sorted((ROOT / "docs" / "decisions").iterdir())
    titles = {record.name: record.read_text().partition("\n")[0] for record in records}
    assert {
        name: wrong for name in titles if (wrong := misnamed_decision(name, titles[name]))
    } == {}
    numbers = [name[:4] for name in titles if name.startswith("00")]
    assert numbers == [f"{number:04}" for number in range(1, LAST_NUMBERED_DECISION + 1)]


@pytest.mark.parametrize(
    ("name", "title", "wrong"),
    [
        ("0053-ids-of-proxies.md", "# 53. Ids of proxies", ""),
        ("2026-11-27-names.md", "# Names", ""),
        ("0054-names.md", "# 54. Names", "by the date"),
        ("0053-names.md", "# 52. Names", "lacks the number 53"),
        ("names.md", "# Names", "by the date"),
        ("2026-11-27.md", "# Names", "by the date"),
        ("2026-11-27-names.md", "Names", "no heading"),
    ],
)
def test_names_of_decision_records(name: str, title: str, wrong: str) -> None:
    found = misnamed_decision(name, title)
    assert wrong in found
    assert bool(wrong) is bool(found)


# Requirement files with packages that no index provides with a trustworthy hash.
WITHOUT_HASHES = {"src/moorage/agent/environments/vllm_cpu/torch.txt": ["torch==2.13.0+cpu"]}


def test_everything_is_installed_by_its_hash(texts: dict[str, str]) -> None:
    for name, pinned in WITHOUT_HASHES.items():
        assert [line for line in texts[name].splitlines() if not line.startswith("#")] == pinned
    installs = re.compile(r"pip install.* (?:-r|--requirement) (\S+)")
    for name, text in texts.items():
        if name.startswith("tests/tidy/"):
            continue
        for line in text.splitlines():
            if (found := installs.search(line)) and found[1] not in WITHOUT_HASHES:
                assert "--require-hashes" in line, f"{name}: {line.strip()}"


def test_images_install_from_the_lock(texts: dict[str, str]) -> None:
    locked = texts["deploy/docker/requirements.lock"]
    assert set(_versions(locked)) <= set(_versions(texts["requirements.lock"]))
    assert "deploy/docker/requirements.lock" in texts["deploy/docker/Dockerfile"]
    for name, text in texts.items():
        if name.startswith("deploy/docker/") and "pip install" in text:
            lines = [line for line in text.splitlines() if "  pip install" in line]
            assert all(
                "--require-hashes" in line or line.endswith("--no-deps .") for line in lines
            ), lines


def _versions(lock: str) -> list[str]:
    return re.findall(r"(?m)^[A-Za-z0-9._-]+==[^ ;]+", lock)
