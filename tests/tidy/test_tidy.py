"""Every measure holds for every file of ours, and every measure can fail."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import measures as m
import pytest

import moorage

ROOT = Path(__file__).resolve().parents[2]
SRC = "src/moorage/manager/some.py"
# Their subject is what they would be blamed for.
EXEMPT = {
    "later": ("tests/tidy/",),
    "machine": ("tests/tidy/", "uv.lock", "LICENSE"),
}


def tracked() -> list[str]:
    """All files that are, or could be, committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in names if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for name in tracked():
        try:
            found[name] = (ROOT / name).read_text()
        except UnicodeDecodeError:  # a picture
            continue
    assert len(found) > 20, "git lists hardly any file: is this a checkout?"
    return found


@pytest.mark.parametrize("measure", m.MEASURES, ids=lambda measure: measure.__name__)
def test_our_files_are_tidy(measure: m.Measure, texts: dict[str, str]) -> None:
    exempt = EXEMPT.get(measure.__name__, ())
    complaints = [
        f"{path}: {complaint}"
        for path, text in texts.items()
        if not path.startswith(exempt or "\0")
        for complaint in measure(path, text)
    ]
    assert not complaints, "\n" + "\n".join(complaints)


def test_both_locks_say_the_same(texts: dict[str, str]) -> None:
    assert m.same_pins(texts["uv.lock"], texts["requirements.lock"]) == []


def test_all_tests_can_run_together(texts: dict[str, str]) -> None:
    assert m.twins(texts) == []


def test_the_version_is_one_and_in_the_changelog(texts: dict[str, str]) -> None:
    version = tomllib.loads(texts["pyproject.toml"])["project"]["version"]
    assert moorage.__version__ == version
    assert f"## [{version}]" in texts["CHANGELOG.md"]


def test_exemptions_are_still_needed(texts: dict[str, str]) -> None:
    """A place that no longer catches everything must leave the list of those that may."""
    for path, function in m.CATCH_ALL:
        complaints = m.catch_all(f"{path}.elsewhere.py", texts[path])
        assert any(f"{function} catches" in complaint for complaint in complaints), f"{path}: {function}"


BAD = [
    (m.file_length, SRC, "x = 1\n" * 401),
    (m.line_length, SRC, "x = '" + "y" * 106 + "'"),
    (m.function_length, SRC, "def f():\n" + "    x = 1\n" * 60),
    (m.function_length, "tests/test_x.py", "async def f():\n" + "    x = 1\n" * 60),
    (m.face, "src/moorage/p/__init__.py", f"__all__ = {[f'n{i}' for i in range(11)]}"),
    (m.face, "src/moorage/p/__init__.py", f"from x import {', '.join(f'n{i}' for i in range(11))}"),
    (m.file_name, "src/moorage/manager/utils.py", ""),
    (m.file_name, "src/moorage/helpers/x.py", ""),
    (m.file_name, "src/moorage/manager/v2/x.sql", ""),
    (m.catch_all, SRC, "try:\n    f()\nexcept Exception:\n    pass"),
    (m.catch_all, SRC, "try:\n    f()\nexcept (ValueError, BaseException) as e:\n    raise X from e"),
    (m.catch_all, SRC, "def g():\n    try:\n        f()\n    except:\n        log()"),
    (m.tasks, SRC, "asyncio.create_task(f())"),
    (m.tasks, SRC, "group.create_task(f())"),
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
    (m.later, SRC, "x = 1  # TODO: better"),
    (m.later, "README.md", "FIXME"),
    (m.machine, "README.md", "look in /root/thing"),
    (m.machine, "deploy/x.yaml", "url: http://db.internal/"),
    (m.machine, "deploy/x.yaml", "address: 10.1.2.3"),
    (m.machine, "tests/test_x.py", "HOST = '192.168.0.7'"),
    (m.machine, "pip.conf", "extra-index-url = https://somewhere/simple"),
    (m.lock_hosts, "uv.lock", 'source = { registry = "https://mirror.example/simple" }'),
    (m.requirements, "requirements.lock", "--index-url https://x/\n"),
    (m.requirements, "requirements.lock", "a @ file:///tmp/a.whl\n"),
    (m.requirements, "requirements.lock", "a>=1\n"),
]


@pytest.mark.parametrize(("measure", "path", "text"), BAD)
def test_every_measure_can_fail(measure: m.Measure, path: str, text: str) -> None:
    assert len(measure(path, text)) >= 1


def test_none_is_left_out_of_that() -> None:
    assert {measure for measure, _, _ in BAD} == set(m.MEASURES)


@pytest.mark.parametrize(
    ("measure", "path", "text"),
    [
        (m.file_length, SRC, "x = 1\n" * 400),
        (m.file_length, "src/moorage/common/wire/a_pb2.py", "x = 1\n" * 401),
        (m.line_length, SRC, "x = '" + "y" * 104 + "'"),
        (m.function_length, SRC, "def f():\n" + "    x = 1\n" * 59),
        (m.face, "src/moorage/p/__init__.py", "from x import a, b, c\n__all__ = ['a']"),
        (m.file_name, "src/moorage/common/aio/tasks.py", ""),
        (m.catch_all, SRC, "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
        (m.catch_all, SRC, "try:\n    f()\nexcept ValueError:\n    pass"),
        (m.tasks, "src/moorage/common/aio/tasks.py", "loop.create_task(f())"),
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
        (m.lock_hosts, "uv.lock", 'url = "https://files.pythonhosted.org/x"'),
        (m.requirements, "requirements.lock", "a==1\nb[c]==2.0 ; sys_platform == 'win32'\n"),
    ],
)
def test_measures_leave_the_good_alone(measure: m.Measure, path: str, text: str) -> None:
    assert measure(path, text) == []


def test_different_locks_are_seen() -> None:
    lock = '[[package]]\nname = "a"\nversion = "1"\n[[package]]\nname = "moorage"\nversion = "0"\n'
    assert m.same_pins(lock, "a==1\n") == []
    assert m.same_pins(lock, "a==2\n") != []
    assert m.same_pins(lock, "") != []


def test_twins_are_seen() -> None:
    twin = "tests/wire/test_x.py"
    assert m.twins(["tests/unit/test_x.py", twin]) != []
    assert m.twins(["tests/unit/test_x.py", twin, "tests/wire/__init__.py"]) == []
