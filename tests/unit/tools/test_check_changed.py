"""Selecting the tests that import changed modules."""

from __future__ import annotations

from tools.check_changed import WALKED, import_graph, imported_names, picked_tests, reached

SOURCES = {
    "src/moorage/__init__.py": "",
    "src/moorage/store/__init__.py": "from moorage.store.rows import Row",
    "src/moorage/store/rows.py": "ROW = SQL.read_row",
    "src/moorage/api.py": "def get():\n    from .store import rows",
    "src/moorage/planner.py": "import dataclasses",
    "src/moorage/postgres.py": "",
    "tests/conftest.py": """
from tests.databases import new
if TYPE_CHECKING:
    from moorage.planner import Plan
@pytest.fixture
def server():
    from moorage.postgres import run
@pytest.fixture
def database(server): ...
@pytest.fixture(autouse=True)
def keep():
    import tests.kept
""",
    "tests/databases.py": "",
    "tests/kept.py": "",
    "tests/store/test_database.py": "def test_database(database): ...",
    "tests/unit/harness.py": "import moorage.planner",
    "tests/unit/test_planner.py": "import harness",
    "tests/unit/test_nothing.py": "import json",
    "tests/store/harness.py": "",
    "tests/store/test_rows.py": "from moorage.store import Row",
    "tests/wire/test_api.py": "from moorage import api",
}
GRAPH = import_graph(SOURCES)


STATEMENTS = {
    "src/moorage/store/sql/read_row.sql": ["read_row"],
    "src/moorage/store/sql/several.sql": ["other", "read_row"],
}


def picked(*changed: str) -> list[str]:
    return picked_tests(changed, SOURCES, GRAPH, STATEMENTS)[0]


def test_tests_that_import_a_module_are_picked() -> None:
    assert picked("src/moorage/planner.py") == ["tests/unit/test_planner.py"]
    assert picked("src/moorage/store/rows.py") == [
        "tests/store/test_rows.py",
        "tests/wire/test_api.py",
    ]


def test_a_statement_of_sql_belongs_to_the_module_that_names_it() -> None:
    of_module = picked("src/moorage/store/rows.py")
    assert picked("src/moorage/store/sql/read_row.sql") == of_module
    assert picked("src/moorage/store/sql/several.sql") == of_module


def test_what_a_conftest_imports_belongs_to_all_tests_below_it() -> None:
    assert len(picked("tests/databases.py")) == len(picked("tests/kept.py")) == 5


def test_what_a_fixture_imports_belongs_to_the_tests_that_ask_for_it() -> None:
    """Also through a further fixture."""
    assert picked("src/moorage/postgres.py") == ["tests/store/test_database.py"]


def test_a_bare_name_is_the_module_of_the_same_folder() -> None:
    assert picked("tests/unit/harness.py") == ["tests/unit/test_planner.py"]
    assert picked("tests/store/harness.py") == []


def test_a_module_that_walks_its_folder_imports_what_is_there() -> None:
    [(walker, folder)] = WALKED.items()
    graph = import_graph({walker: "", f"{folder}sessions/logs.py": "", "src/moorage/cli.py": ""})
    assert graph[walker] == {f"{folder}sessions/logs.py"}


def test_a_changed_test_picks_itself() -> None:
    assert picked("tests/unit/test_nothing.py") == ["tests/unit/test_nothing.py"]


def test_unknown_files_pick_nothing() -> None:
    assert picked("README.md") == []


def test_relative_imports_are_resolved() -> None:
    assert imported_names("from .a import b", "p.q") == {"p.q.a", "p.q.a.b"}
    assert imported_names("from ..a import b", "p.q") == {"p.a", "p.a.b"}
    assert imported_names("from . import b", "p.q") == {"p.q", "p.q.b"}


def test_circles_of_imports_end() -> None:
    assert reached({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}, {"b"}) == {"a", "b", "c"}
