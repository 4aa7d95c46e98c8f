"""Validation of proxies' reports: refuses values that could not be stored, and reports made in
another proxy's name. Pure.

One statement stores the reports of all proxies, so one wrong value would make all of them fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from moorage.common.link.proxy_messages import LimitNeed, LoadReport, ProxyReport

_MAX_INT64 = (1 << 63) - 1
# Above any limit that can be set, and small enough to be summed.
_MAX_NEED = 1 << 53
_MAX_TEXT = 1 << 20
_MAX_SECONDS = 1e9
_SUBJECTS = ("key/", "project/", "model/", "budget/")


def find_problem(report: ProxyReport) -> str:
    """Describe the first error, or return "" for a valid report. Usage records are checked
    individually when they are stored."""
    texts = list(_texts(report))
    if any("\0" in text for text in texts) or sum(map(len, texts)) > _MAX_TEXT:
        return (
            "a text of the report contains a NUL character, or the texts have more than "
            f"{_MAX_TEXT} characters"
        )

    if report.load is not None and (problem := _problem_of_load(report.load, report.proxy_id)):
        return problem

    return next((problem for need in report.needs if (problem := _problem_of_need(need))), "")


def _texts(report: ProxyReport) -> Iterator[str]:
    yield from (report.proxy_id, report.dialout, *report.unreached)
    yield from (need.subject for need in report.needs)
    if (load := report.load) is not None:
        yield from (load.proxy_id, load.incarnation)
        for model in load.models:
            yield model.model
            yield from (replica.session_id for replica in model.replicas)


def _problem_of_load(load: LoadReport, proxy: str) -> str:
    if load.proxy_id != proxy and not load.proxy_id.startswith(f"{proxy}/"):
        return (
            f"load of {load.proxy_id[:128]!r} is not that of proxy {proxy[:128]!r}or one of its "
            "workers"
        )

    if load.routes_generation > _MAX_INT64:
        return f"generation {load.routes_generation} is above {_MAX_INT64}"

    times = [
        time
        for model in load.models
        for time in (model.idle_s, *(r.failing_s for r in model.replicas))
    ]
    wrong = next((time for time in times if math.isnan(time) or abs(time) > _MAX_SECONDS), None)
    if wrong is not None:
        return f"a time of {wrong} s is not valid"

    models = [model.model for model in load.models]
    return (
        "" if len(set(models)) == len(models) else "the report contains the load of a model twice"
    )


def _problem_of_need(need: LimitNeed) -> str:
    if not need.subject.startswith(_SUBJECTS):
        return f"{need.subject[:128]!r} has no limit"

    numbers = (
        *(need.limit_requests, need.limit_tokens, need.limit_concurrent),
        *(need.used_requests, need.used_tokens, need.used_concurrent),
        *(need.wanted_requests, need.wanted_tokens, need.wanted_concurrent),
        *(need.held_requests, need.held_tokens, need.held_concurrent),
    )
    wrong = next((number for number in numbers if not 0 <= number <= _MAX_NEED), None)
    return f"{wrong} of {need.subject[:128]!r} is not 0 to {_MAX_NEED}" if wrong is not None else ""
