"""Validation of proxies' reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.common.link.proxy_messages import (
    LimitNeed,
    LoadReport,
    ModelLoad,
    ProxyReport,
    ReplicaLoad,
)
from moorage.common.model.ids import SessionId
from moorage.manager.rpc.proxy_report_validation import find_problem

REPLICA = ReplicaLoad(SessionId("01900000-0000-7000-8000-000000000000"), 1, 2.0)
LOAD = LoadReport("p/0", "run", 1, (ModelLoad("m", replicas=(REPLICA,)), ModelLoad("n")))
NEED = LimitNeed("key/k", limit_requests=60, wanted_requests=1)
REPORT = ProxyReport("p", LOAD, needs=(NEED, replace(NEED, subject="budget/project/month/gpu/x")))


def of_models(*models: ModelLoad) -> ProxyReport:
    return replace(REPORT, load=replace(LOAD, models=models))


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (REPORT, ""),
        (replace(REPORT, load=None, needs=()), ""),
        (replace(REPORT, load=replace(LOAD, proxy_id="p")), ""),
        (replace(REPORT, load=replace(LOAD, proxy_id="q")), "is not that of proxy 'p'"),
        (replace(REPORT, load=replace(LOAD, proxy_id="pp/0")), "is not that of proxy 'p'"),
        (replace(REPORT, proxy_id="p\0", load=None), "NUL"),
        (replace(REPORT, dialout="\0"), "NUL"),
        (replace(REPORT, unreached=("a", "\0")), "NUL"),
        (replace(REPORT, load=replace(LOAD, incarnation="\0")), "NUL"),
        (of_models(ModelLoad("\0")), "NUL"),
        (of_models(ModelLoad("a" * (1 << 20))), "more than 1048576"),
        (
            of_models(ModelLoad("m", replicas=(replace(REPLICA, session_id=SessionId("\0")),))),
            "NUL",
        ),
        (of_models(ModelLoad("m"), ModelLoad("m")), "twice"),
        (of_models(ModelLoad("m", idle_s=float("nan"))), "a time of nan"),
        (of_models(ModelLoad("m", idle_s=float("-inf"))), "a time of -inf"),
        (
            of_models(ModelLoad("m", replicas=(replace(REPLICA, failing_s=float("inf")),))),
            "a time of inf",
        ),
        (replace(REPORT, load=replace(LOAD, routes_generation=1 << 63)), "generation"),
        (replace(REPORT, needs=(replace(NEED, subject="x"),)), "'x' has no limit"),
        (replace(REPORT, needs=(replace(NEED, subject="key/\0"),)), "NUL"),
        (replace(REPORT, needs=(NEED, replace(NEED, held_tokens=-1))), "-1 of 'key/k'"),
        (replace(REPORT, needs=(replace(NEED, used_requests=1 << 60),)), "is not 0 to"),
    ],
)
def test_problems(report: ProxyReport, problem: str) -> None:
    found = find_problem(report)
    assert problem in found
    assert bool(problem) == bool(found)
