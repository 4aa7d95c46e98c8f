"""A part's findings: facts, and checks that pass or fail, written while the part runs."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REHEARSAL = bool(os.environ.get("KIT_REHEARSE"))


class NotRun(Exception):
    """The machine lacks something that the part needs; the message says what."""


class Report:
    """``path``: a JSON file that always contains the findings so far, so that a killed part leaves
    them behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.monotonic()
        self._value: dict[str, Any] = {"facts": {}, "checks": [], "status": "running"}
        self._save()

    def fact(self, name: str, value: Any) -> None:
        print(f"fact {name}: {value}", flush=True)
        self._value["facts"][name] = value
        self._save()

    def check(self, name: str, holds: bool, detail: Any = "", *, gpu: bool = False) -> bool:
        """``gpu``: a check that a rehearsal cannot make."""
        result = "not measured" if gpu and REHEARSAL else "holds" if holds else "FAILS"
        print(f"check {name}: {result} {detail}", flush=True)
        self._value["checks"].append({"name": name, "result": result, "detail": str(detail)})
        self._save()
        return holds

    @contextmanager
    def caught(self, name: str) -> Iterator[None]:
        """A step whose failure must not keep the part's other steps from running."""
        try:
            yield
        except NotRun:
            raise
        except (Exception, AssertionError) as error:  # noqa: BLE001 - it is reported
            traceback.print_exc()
            self.check(name, False, f"{type(error).__name__}: {error}"[:2000])

    def end(self, status: str, detail: str = "") -> None:
        if status == "passed" and any(
            check["result"] == "FAILS" for check in self._value["checks"]
        ):
            status = "failed"
        self._value |= {"status": status, "detail": detail}
        self._save()

    def _save(self) -> None:
        self._value["seconds"] = round(time.monotonic() - self._started, 2)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._value, indent=1, default=str))
        partial.rename(self._path)
