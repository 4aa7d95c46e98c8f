"""The dashboards in deploy/ match the generator's output and use existing metrics."""

from __future__ import annotations

import re
import runpy

import pytest

from .generator import dashboards

_METRIC = re.compile(r"\b(?:moorage|process)_[a-z_]+")
_SERIES = re.compile(r"_(?:bucket|count|sum)$")


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_committed_dashboards_are_current(name: str) -> None:
    file = dashboards.FOLDER / f"{name}.json"
    assert file.read_text() == dashboards.dashboard(name), (
        "run `deploy/monitoring/make_dashboards.py`"
    )


def test_queries_name_metrics_that_exist() -> None:
    reference = runpy.run_path(str(dashboards.FOLDER.parents[2] / "docs" / "reference.py"))
    known = set(reference["metric_texts"]())
    rules = (dashboards.FOLDER.parent / "alerts.yaml").read_text()
    texts = [expression for _, _, expression in dashboards.queries()]
    texts += re.findall(r"expr: (.*(?:\n {10,}.*)*)", rules)
    used = {name for text in texts for name in _METRIC.findall(text)}
    assert len(used) > 40
    unknown = {name for name in used if name not in known and _SERIES.sub("", name) not in known}
    assert not unknown
