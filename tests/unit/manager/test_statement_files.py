"""Files of SQL: one statement in each, or several below their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.manager.store.database.queries import load

SEVERAL = """-- name: tide_list
-- All tides.
SELECT * FROM tides

-- name: tide_count
SELECT count(*) FROM tides WHERE status IN (:TERMINAL)
"""


def files(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text)
    return sorted(folder.iterdir())


def test_a_file_holds_one_statement_or_several(tmp_path: Path) -> None:
    assert load(files(tmp_path, tide_put="INSERT INTO tides DEFAULT VALUES\n", tides=SEVERAL)) == {
        "tide_put": "INSERT INTO tides DEFAULT VALUES\n",
        "tide_list": "-- All tides.\nSELECT * FROM tides\n",
        "tide_count": (
            "SELECT count(*) FROM tides WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR')\n"
        ),
    }


def test_two_statements_of_a_name_are_refused_with_both_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tide_list\.sql and .*tides\.sql .* name tide_list"):
        load(files(tmp_path, tide_list="SELECT 1\n", tides=SEVERAL))
    with pytest.raises(ValueError, match=r"tides\.sql: two statements have the name tide_list"):
        load(files(tmp_path, tides=SEVERAL + "\n-- name: tide_list\nSELECT 1\n"))


def test_a_statement_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tides\.sql: text before the first line"):
        load(files(tmp_path, tides=f"SELECT 1\n{SEVERAL}"))
