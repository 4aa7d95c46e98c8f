"""Metrics of models in /v1/models: the loads that their engines report."""

from __future__ import annotations

import json

import pytest

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.link.proxy_messages import EngineRequests
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter


def target(name: str) -> Target:
    return Target(SessionId(name), KernelId(name), host="h", port=1, key="", engine="vllm")


def router(*kernels: str) -> RequestRouter:
    made = RequestRouter(ProxySettings(auth="none"), ProxyMetrics(), randrange=lambda _: 0)
    made.update_table(RouteTable(1, (ModelRoute("m", 1, tuple(map(target, kernels))),), ()))
    return made


def metrics(of: RequestRouter, path: str = "/v1/models/m") -> object:
    answer = of.admit_head("GET", path, {}, None, unix_now=0.0, now=0.0)
    assert isinstance(answer, LocalResponse)
    found = json.loads(answer.body)
    return found["metrics"] if "metrics" in found else found["data"][0]["metrics"]


def load(name: str, running: int, waiting: int, kv_cache: int | None = None) -> EngineRequests:
    return EngineRequests(KernelId(name), running, waiting, kv_cache)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
def test_loads_of_all_replicas_are_summed(path: str) -> None:
    of = router("a", "b", "new")
    assert metrics(of, path) is None
    of.take_engine_loads([load("a", 3, 1, 250), load("b", 2, 0, 500), load("other", 9, 9, 1000)])
    assert metrics(of, path) == {"running": 5, "waiting": 1, "kv_cache": 0.375}
    of.take_engine_loads([load("b", 0, 0, 0)])
    assert metrics(of, path) == {"running": 3, "waiting": 1, "kv_cache": 0.125}


def test_an_engine_without_a_kv_cache() -> None:
    of = router("a")
    of.take_engine_loads([load("a", 1, 0)])
    assert metrics(of) == {"running": 1, "waiting": 0, "kv_cache": None}


def test_loads_may_arrive_before_their_routes_and_are_forgotten_at_last() -> None:
    of = router("a")
    of.take_engine_loads([load("later", 1, 0)])
    of.update_table(RouteTable(2, (ModelRoute("m", 1, (target("later"),)),), ()))
    assert metrics(of) == {"running": 1, "waiting": 0, "kv_cache": None}
    of.update_table(RouteTable(3, (ModelRoute("m", 1, (target("a"),)),), ()))
    of.take_engine_loads(load(str(number), 1, 0) for number in range(2000))
    of.update_table(RouteTable(4, (ModelRoute("m", 1, (target("later"),)),), ()))
    assert metrics(of) is None
