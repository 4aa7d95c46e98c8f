"""The load that a proxy reports for models."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.link.proxy_messages import ModelLoad, ReplicaLoad
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.control.load import LoadMeter
from moorage.proxy.core.limits.ledger import Ledger, cells_needed
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.token_meter import Tokens
from moorage.proxy.core.usage_book import UsageBook


def test_results_of_the_last_requests_are_told() -> None:
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(
        Ledger([0] * cells_needed(1)), lambda _: None, UsageBook(), lambda: 0.0
    )
    meter = LoadMeter(router, limiter, "w", "e")
    a, b = (
        Target(SessionId(one), KernelId(one), host="h", port=1, key="k", engine="custom")
        for one in "ab"
    )
    router.update_table(RouteTable(1, (ModelRoute("m", 1, (a, b)),), ()))

    def told(now: float) -> list[ReplicaLoad] | None:
        report = meter.read(now, whole=False)
        return None if report is None else [one for m in report.models for one in m.replicas]

    limiter.activity.touch("m", 1.0)
    router.record_status(b, "x", 200, 1.0)
    for key in ("x", "y"):
        router.record_status(a, key, 500, 1.0)

    assert told(1.2) == [
        ReplicaLoad(SessionId("a"), 0, 1.0),
        ReplicaLoad(SessionId("b"), answers=True),
    ]
    assert told(9.0) == [
        ReplicaLoad(SessionId("a"), 0, 8.0),
        ReplicaLoad(SessionId("b"), answers=True),
    ]
    assert told(21.0) == [ReplicaLoad(SessionId("a"), 0, 20.0)]
    router.record_status(a, "x", 200, 21.5)
    assert told(22.0) == [ReplicaLoad(SessionId("a"), answers=True)]
    assert told(23.0) is None


class Request:
    model = "m"


@pytest.mark.parametrize("held", [True, False], ids=["held", "with a replica"])
def test_load_of_a_model_whose_endpoint_is_gone_ends(held: bool) -> None:
    """The manager keeps the last report under the model's name. Without a final report of no load,
    the next endpoint with that name would appear busy until it received a request."""
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(
        Ledger([0] * cells_needed(1)), lambda _: None, UsageBook(), lambda: 0.0
    )
    meter = LoadMeter(router, limiter, "w", "e")
    request = cast(Any, Request())
    router.update_table(RouteTable(1, (ModelRoute("m", 1, ()),), ()))
    in_flight = cast(dict[str, int], router.in_flight_by_model)
    limiter.activity.touch("m", 1.0)

    if held:
        router.waiting.add(request, 0, 10)
    else:
        in_flight["m"] = 1

    report = meter.read(2.0, whole=False)
    assert report is not None
    assert [(m.in_flight, m.waiting) for m in report.models] == [(0, 1) if held else (1, 0)]
    router.update_table(RouteTable(2, (), ()))

    if held:
        router.waiting.remove(request)
    else:
        del in_flight["m"]

    report = meter.read(3.0, whole=False)
    assert report is not None
    assert report.models == (ModelLoad("m", idle_s=2.0),)
    assert meter.read(4.0, whole=False) is None, "once"
    assert not limiter.activity.models


def test_errors_and_tokens_are_counters() -> None:
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(
        Ledger([0] * cells_needed(1)), lambda _: None, UsageBook(), lambda: 0.0
    )
    meter = LoadMeter(router, limiter, "w", "e")
    router.update_table(RouteTable(1, (ModelRoute("m", 1, ()),), ()))

    def told() -> list[tuple[int, int, int, int]] | None:
        report = meter.read(2.0, whole=False)
        if report is None:
            return None
        return [(m.requests, m.errors, m.tokens_in, m.tokens_out) for m in report.models]

    limiter.activity.touch("m", 1.0, requests=2)
    assert told() == [(2, 0, 0, 0)]
    for code in (200, 404, 429, 499, 500, 503):
        router.record_request("m", code, 0.1)

    limiter.activity.touch("m", 1.0).add_tokens(Tokens(30, 12))
    assert told() == [(2, 2, 30, 12)]
    assert told() is None, "nothing has changed"
