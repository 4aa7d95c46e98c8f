"""An endpoint's adapters: models that its replicas serve in addition to its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from flow_playbook import KEY, Playbook, target
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, ModelRoute, RequestLimits, RouteTable
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.limits.request_needs import subjects_of
from moorage.proxy.core.routes import IndexedTable

SQL = "tiny:sql"
CHAT = "tiny:chat"


def table(generation: int = 1, *, has: dict[str, tuple[str, ...]], **route: Any) -> RouteTable:
    """``has``: the adapters of each replica."""
    targets = tuple(replace(target(name), adapters=adapters) for name, adapters in has.items())
    tiny = ModelRoute("tiny", 7, targets, "p", adapters=(SQL, CHAT), **route)
    return RouteTable(generation, (tiny,), (KEY,))


def book(routes: RouteTable) -> Playbook:
    made = Playbook("-")
    made.router.update_table(replace(routes, generation=2))
    return made


def test_requests_go_to_the_replicas_that_have_it() -> None:
    made = book(table(has={"a": (), "b": (SQL,), "c": (CHAT,)}))
    made.event("request")
    assert made.event(f'body {{"model":"{SQL}"}}') == "send b"
    assert made.flow.payload == b'{"model":"tiny:sql"}', "vLLM knows it by this name"
    assert made.event("refused") == "502 upstream_error", "no other has it"


def test_it_counts_for_its_endpoint() -> None:
    made = book(table(has={"a": (SQL,)}))
    made.event("request")
    made.event(f'body {{"model":"{SQL}"}}')
    assert made.router.in_flight_by_model == {"tiny": 1}
    assert set(made.router.last_request) == {"tiny"}
    made.event("response 200")
    made.event("end")
    assert made.requests() == {("tiny", "200"): 1}


def test_it_is_held_until_a_replica_has_it() -> None:
    made = book(table(has={"a": ()}, holds=True))
    made.event("request")
    assert made.event(f'body {{"model":"{SQL}"}}') == "hold 60"
    assert made.router.held == {"tiny": 1}
    made.router.update_table(table(3, has={"a": (), "b": (SQL,)}, holds=True))
    assert made.flow.routes_changed(made.now) is not None
    assert made.flow.target is not None
    assert made.flow.target.kernel_id == "b"


@pytest.mark.parametrize("models", [("tiny",), (SQL,)])
def test_a_key_for_the_endpoint_or_for_the_adapter_may_ask_it(models: tuple[str, ...]) -> None:
    key = replace(KEY, limits_models=True, models=models)
    made = book(replace(table(has={"a": (SQL, CHAT)}), keys=(key,)))
    made.event("request")
    assert made.event(f'body {{"model":"{SQL}"}}') == "send a"
    made = book(replace(table(has={"a": (SQL, CHAT)}), keys=(key,)))
    made.event("request")
    expected = "send a" if models == ("tiny",) else "404 model_not_found"
    assert made.event(f'body {{"model":"{CHAT}"}}') == expected


def listed(key: KeyGrant = KEY, path: str = "/v1/models") -> Any:
    made = book(replace(table(has={"a": (SQL,)}), keys=(key,)))
    fields = CIMultiDict({"Authorization": "Bearer key"})
    response = made.flow.head("GET", path, fields, None, now=made.now, unix_now=0.0)
    assert isinstance(response, LocalResponse)
    return json.loads(response.body)


def test_the_list_of_models_has_it_with_its_parent() -> None:
    found = {one["id"]: one.get("parent") for one in listed()["data"]}
    assert found == {"tiny": None, SQL: "tiny", CHAT: "tiny"}
    assert listed(path=f"/v1/models/{SQL}")["parent"] == "tiny"


def test_a_change_of_the_endpoint_changes_its_adapters() -> None:
    indexed = IndexedTable(table(has={"a": (SQL,)}))
    fewer = replace(table(2, has={"a": ()}).models[0], adapters=(CHAT,))
    indexed.change(RouteTable(2, (fewer,), (), base=1))
    assert indexed.names() == ["tiny", CHAT]
    assert indexed.whole().models == (fewer,)
    indexed.change(RouteTable(3, (), (), base=2, removed_models=("tiny",)))
    assert indexed.names() == []


def test_an_endpoint_of_that_name_goes_first() -> None:
    own = ModelRoute(SQL, 8, (target("own"),))
    indexed = IndexedTable(table(has={"a": (SQL,)}))
    indexed.change(RouteTable(2, (own,), (), base=1))
    assert indexed.model(SQL) == own
    assert indexed.names().count(SQL) == 1


def test_limits_are_those_of_the_endpoint() -> None:
    limits = RequestLimits(requests_per_minute=1)
    route = IndexedTable(table(has={"a": ()}, limits=limits)).model(SQL)
    assert [one.name for one in subjects_of(None, route, None)] == ["model/tiny"]
