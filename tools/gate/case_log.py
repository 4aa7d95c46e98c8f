"""pytest plugin that writes a JSON line for each start and each end of a case.

Loaded by ``-p tools.gate.case_log``. The file is ``$GATE_CASE_LOG``; with pytest-xdist only the
controller writes. A start line has ``case``; an end line also has ``outcome`` (passed, failed,
skipped), ``seconds`` and, for failures, ``output``: the traceback and the case's output. We wrote
our own because pytest-reportlog's lines contain tracebacks as trees of values, not as text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

MAX_OUTPUT = 20_000


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("GATE_CASE_LOG")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(CaseLog(Path(path)), "gate-case-log")


class CaseLog:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._outcomes: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._output: dict[str, str] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(case=case_id(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = case_id(report.nodeid)
        self._seconds[case] = self._seconds.get(case, 0.0) + report.duration
        if report.failed:
            self._outcomes[case] = "failed"
            self._output[case] = (self._output.get(case, "") + _text(report))[-MAX_OUTPUT:]
        elif self._outcomes.get(case) != "failed" and (report.when == "call" or report.skipped):
            self._outcomes[case] = report.outcome

        # A worker that dies reports its case as failed at an unknown stage ("???"), and nothing
        # after that.
        if report.when in ("teardown", "???"):
            self._end(case)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            case = report.nodeid or "collection"
            self._write(
                case=case, outcome="failed", seconds=0.0, output=_text(report)[-MAX_OUTPUT:]
            )

    def pytest_unconfigure(self) -> None:
        for case in list(self._outcomes):
            self._end(case)
        self._file.close()

    def _end(self, case: str) -> None:
        line: dict[str, Any] = {
            "case": case,
            "outcome": self._outcomes.pop(case, "passed"),
            "seconds": round(self._seconds.pop(case, 0.0), 3),
        }
        if case in self._output:
            line["output"] = self._output.pop(case)
        self._write(**line)

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def case_id(nodeid: str) -> str:
    """The node id without the group that ``--dist loadgroup`` appends to it, by pytest-xdist's
    rule."""
    if nodeid.rfind("@") > nodeid.rfind("]"):
        return nodeid.rpartition("@")[0]
    return nodeid


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    parts = [f"---- {getattr(report, 'when', 'collection')} ----", report.longreprtext]
    for title, content in report.sections:
        parts.append(f"---- {title} ----\n{content}")
    return "\n".join(parts) + "\n"
