"""The statements in ``sql/*.sql``, one per file, loaded once and called by the file's name."""

from __future__ import annotations

from pathlib import Path

SQL: dict[str, str] = {
    file.stem: file.read_text(encoding="utf-8")
    for file in sorted((Path(__file__).parent / "sql").glob("*.sql"))
}
