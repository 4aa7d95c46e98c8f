"""Ids of stored responses, from which any proxy can find the replica, but only for the response's
owner."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_response_homes import RESPONSES, USAGE, Proxy, tokens

from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.response_homes import Home
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.core.stored_response import make_id, named_home

KERNEL = KernelId("01a1fe3c-5331-77ad-8599-a7c43705bf82")
TARGET = Target(SessionId("s"), KERNEL, host="h", port=1, key="replica-key", engine="vllm")


def table(target: Target = TARGET) -> IndexedTable:
    return IndexedTable(
        RouteTable(1, (ModelRoute("other", 1), ModelRoute("tiny", 1, (target,))), ())
    )


def made(proxy: Proxy, **fields: object) -> tuple[str, dict[str, object]]:
    """The id that the engine takes from the request, and the request that it received."""
    command, flow = proxy.begin("POST", RESPONSES, {"model": "tiny", "input": "x"} | fields)
    assert command.startswith("send"), command
    sent = json.loads(flow.payload)
    flow.client_gone(proxy.now)  # this proxy never sees the answer
    return str(sent.get("request_id")), sent


@given(
    st.integers(0, 2**63 - 1),
    st.booleans(),
    st.sampled_from(["project p", "all", "project \ud800"]),
)
def test_id_is_found_by_its_owner_only(nonce: int, is_background: bool, owner: str) -> None:
    response_id = make_id(TARGET, owner, nonce, is_background=is_background)
    assert named_home(response_id, owner, table()) == Home("tiny", KERNEL, not is_background)
    assert named_home(response_id, "project q", table()) is None
    assert named_home(response_id, owner, table(replace(TARGET, kernel_id=KernelId("k")))) is None
    assert named_home(response_id, owner, table(replace(TARGET, key="another"))) is None


@given(st.integers(0, 91), st.characters())
def test_changed_id_names_nothing(position: int, character: str) -> None:
    response_id = make_id(TARGET, "all", 7, is_background=False)
    changed = response_id[:position] + character + response_id[position + 1 :]
    assert (named_home(changed, "all", table()) is not None) == (changed == response_id)


@given(st.text(max_size=140))
def test_any_id_may_be_asked_for(response_id: str) -> None:
    assert named_home(response_id, "all", table()) is None


def test_replica_without_a_key_signs_nothing() -> None:
    bare = replace(TARGET, key="")
    assert named_home(make_id(bare, "all", 7, is_background=False), "all", table(bare)) is None


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("POST", "/cancel")])
def test_another_proxy_finds_the_replica(method: str, rest: str) -> None:
    first = Proxy("a b", "vllm")
    second = Proxy("b a", "vllm")
    response_id, sent = made(first)
    assert response_id.startswith("resp_")
    assert sent | {"request_id": ""} == {"model": "tiny", "input": "x", "request_id": ""}
    path = f"{RESPONSES}/{response_id}{rest}"
    assert second.ask(method, path, key="ours") == "a"
    assert second.ask(method, path, key="theirs") == "404 response_not_found"
    following = {"model": "tiny", "input": "y", "previous_response_id": response_id}
    assert second.ask("POST", RESPONSES, following) == "a"
    assert (
        second.ask("POST", RESPONSES, following, key="theirs") == "400 previous_response_not_found"
    )
    second.routes("b")
    assert second.ask(method, path) == "404 response_not_found"


def test_client_does_not_choose_its_id() -> None:
    response_id, _ = made(Proxy("a", "vllm"), request_id="resp_mine")
    assert response_id != "resp_mine"


def test_each_replica_that_is_tried_gets_an_id_of_its_own() -> None:
    proxy = Proxy("a b", "vllm")
    _, flow = proxy.begin("POST", RESPONSES, {"model": "tiny"})
    flow.upstream_head(503, "application/json", proxy.now)
    assert json.loads(flow.payload)["request_id"].startswith("resp_b.")
    flow.client_gone(proxy.now)


@pytest.mark.parametrize(
    ("engine", "path"),
    [("custom", RESPONSES), ("llamacpp", RESPONSES), ("vllm", "/v1/completions")],
)
def test_other_requests_pass_as_they_are(engine: str, path: str) -> None:
    _, flow = Proxy("a", engine).begin("POST", path, {"model": "tiny"})
    assert json.loads(flow.payload) == {"model": "tiny"}


def test_tokens_of_a_response_of_another_proxy() -> None:
    answer = {"status": "completed", "usage": USAGE}
    for is_background, expected in ((False, (0, 0)), (True, (5, 7))):
        first = Proxy("a", "vllm")
        second = Proxy("a", "vllm")
        response_id, _ = made(first, background=is_background)
        for counted in (expected, (0, 0)):
            second.ask("GET", f"{RESPONSES}/{response_id}", answer=answer | {"id": response_id})
            assert tokens(second) == counted
