"""Wire codecs of the proxies' link: round trips of every message."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link import messages as m
from moorage.common.link import proxy_messages as p
from moorage.common.link import route_codec
from moorage.common.link.pb import routes_pb2

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INTEGERS = st.integers(0, 2**53)
PORTS = st.integers(0, 65535)
TARGETS = st.builds(
    m.Target,
    session_id=TEXT,
    kernel_id=TEXT,
    host=TEXT,
    port=PORTS,
    key=TEXT,
    engine=TEXT,
    draining=st.booleans(),
    accepts_priority=st.booleans(),
    tls=st.booleans(),
    prefix=TEXT,
    adapters=st.lists(TEXT, max_size=3).map(tuple),
    canary=st.booleans(),
    peer_id=TEXT,
    lacks=st.lists(TEXT, max_size=3).map(tuple),
)
FALLBACKS = st.builds(m.RouteFallback, model=TEXT, provider=st.none() | TARGETS)
LIMITS = st.builds(
    m.RequestLimits,
    **dict.fromkeys(
        ("requests_per_minute", "tokens_per_minute", "concurrent_requests"), st.none() | INTEGERS
    ),
)
ROUTES = st.builds(
    m.ModelRoute,
    name=TEXT,
    created=INTEGERS,
    targets=st.lists(TARGETS, max_size=3).map(tuple),
    project=TEXT,
    shared_with=st.lists(TEXT, max_size=3).map(tuple),
    limits=st.none() | LIMITS,
    holds=st.booleans(),
    status=TEXT,
    expected_s=st.integers(0, 2**31 - 1),
    ready_at=st.integers(0, 2**40),
    max_model_len=st.integers(0, 2**31 - 1),
    fallbacks=st.lists(FALLBACKS, max_size=3).map(tuple),
    fallback_after_s=st.floats(0, 1e9),
    prefix_affinity=st.booleans(),
    max_load=st.floats(0, 1e9),
    canary=st.integers(0, 99),
    adapters=st.lists(TEXT, max_size=3).map(tuple),
    apis=st.lists(TEXT, max_size=3).map(tuple),
    suspended_until=st.integers(0, 2**40),
    max_body_bytes=st.integers(0, 2**40),
)
KEYS = st.builds(
    m.KeyGrant,
    sha256=TEXT,
    expires_at=INTEGERS,
    user=TEXT,
    project=TEXT,
    admin=st.booleans(),
    project_admin=st.booleans(),
    limits_models=st.booleans(),
    models=st.lists(TEXT, max_size=3).map(tuple),
    id=TEXT,
    owner=TEXT,
    limits=st.none() | LIMITS,
    priority=st.none() | st.integers(0, 100),
    exhausted_until=INTEGERS,
    warned_until=INTEGERS,
    budgets=st.lists(
        st.builds(m.BudgetGrant, subject=TEXT, unit=TEXT, hard=INTEGERS), max_size=2
    ).map(tuple),
    max_body_bytes=st.integers(0, 2**40),
)
PROJECTS = st.builds(m.ProjectGrant, name=TEXT, limits=LIMITS)
APP_ROUTES = st.builds(
    m.AppRoute,
    session_id=TEXT,
    app=TEXT,
    protocol=st.sampled_from(["http", "tcp"]),
    base_path=st.booleans(),
    host=TEXT,
    port=PORTS,
    key=TEXT,
    user=TEXT,
    project=TEXT,
    idle_ends_at=INTEGERS,
    idle_criterion=TEXT,
    unisolated=st.booleans(),
    peer_id=TEXT,
)
ACCESS_TOKENS = st.builds(
    m.AccessTokenGrant, sha256=TEXT, session_id=TEXT, app=TEXT, expires_at=INTEGERS
)
TABLES = st.builds(
    m.RouteTable,
    generation=INTEGERS,
    models=st.lists(ROUTES, max_size=3).map(tuple),
    keys=st.lists(KEYS, max_size=3).map(tuple),
    apps=st.lists(APP_ROUTES, max_size=3).map(tuple),
    access_tokens=st.lists(ACCESS_TOKENS, max_size=3).map(tuple),
    base=INTEGERS,
    removed_models=st.lists(TEXT, max_size=3).map(tuple),
    removed_keys=st.lists(TEXT, max_size=3).map(tuple),
    removed_apps=st.lists(TEXT, max_size=3).map(tuple),
    removed_access_tokens=st.lists(TEXT, max_size=3).map(tuple),
    projects=st.lists(PROJECTS, max_size=3).map(tuple),
    removed_projects=st.lists(TEXT, max_size=3).map(tuple),
    revoked_agents=st.lists(TEXT, max_size=3).map(tuple),
    removed_revoked_agents=st.lists(TEXT, max_size=3).map(tuple),
)
COUNTS = st.integers(0, 1 << 31)
REPLICA_LOADS = st.builds(
    p.ReplicaLoad,
    session_id=TEXT,
    in_flight=COUNTS,
    failing_s=st.floats(0, 1e9),
    answers=st.booleans(),
)
MODEL_LOADS = st.builds(
    p.ModelLoad,
    model=TEXT,
    in_flight=COUNTS,
    waiting=COUNTS,
    requests=INTEGERS,
    idle_s=st.floats(0, 1e9),
    first_token_ms=st.none() | COUNTS,
    replicas=st.lists(REPLICA_LOADS, max_size=3).map(tuple),
    errors=INTEGERS,
    tokens_in=INTEGERS,
    tokens_out=INTEGERS,
)
LOADS = st.builds(
    p.LoadReport,
    proxy_id=TEXT,
    incarnation=TEXT,
    routes_generation=INTEGERS,
    models=st.lists(MODEL_LOADS, max_size=3).map(tuple),
    whole=st.booleans(),
    apps=st.lists(TEXT, max_size=3).map(tuple),
    tells_apps=st.booleans(),
)


def _every_field(kind: type) -> st.SearchStrategy[Any]:
    """A message with only texts and integers."""
    return st.builds(
        kind, **{one.name: TEXT if one.type == "str" else INTEGERS for one in fields(kind)}
    )


RECORDS, NEEDS, SHARES, ACKS = map(
    _every_field, (p.UsageRecord, p.LimitNeed, p.LimitShare, p.RecordsAck)
)
BATCHES = st.builds(p.UsageBatch, epoch=TEXT, records=st.lists(RECORDS, max_size=3).map(tuple))
PROXY_REPORTS = st.builds(
    p.ProxyReport,
    proxy_id=TEXT,
    load=st.none() | LOADS,
    usage=st.lists(BATCHES, max_size=3).map(tuple),
    needs=st.lists(NEEDS, max_size=3).map(tuple),
    dialout=TEXT,
    unreached=st.lists(TEXT, max_size=3).map(tuple),
)
PROXY_REPLIES = st.builds(
    p.ProxyReply,
    acks=st.lists(ACKS, max_size=3).map(tuple),
    shares=st.lists(SHARES, max_size=3).map(tuple),
    proxies=COUNTS,
    managers=st.lists(TEXT, max_size=2).map(tuple),
    manager=TEXT,
    engines=st.lists(
        st.builds(
            p.EngineRequests,
            kernel_id=TEXT,
            running=COUNTS,
            waiting=COUNTS,
            kv_cache=st.none() | st.integers(0, 1000),
        ),
        max_size=3,
    ).map(tuple),
)


@given(TABLES)
def test_route_table_round_trip(table: m.RouteTable) -> None:
    wire = routes_pb2.RouteTable.FromString(route_codec.routes_to_wire(table).SerializeToString())
    assert route_codec.routes_from_wire(wire) == table


@given(PROXY_REPORTS)
def test_proxy_report_round_trip(report: p.ProxyReport) -> None:
    wire = routes_pb2.ProxyReport.FromString(route_codec.report_to_wire(report).SerializeToString())
    assert route_codec.report_from_wire(wire) == report


@given(PROXY_REPLIES)
def test_proxy_reply_round_trip(reply: p.ProxyReply) -> None:
    wire = routes_pb2.ProxyReply.FromString(route_codec.reply_to_wire(reply).SerializeToString())
    assert route_codec.reply_from_wire(wire) == reply


@pytest.mark.parametrize(
    "strategy",
    [
        TARGETS,
        FALLBACKS,
        ROUTES,
        KEYS,
        PROJECTS,
        APP_ROUTES,
        TABLES,
        MODEL_LOADS,
        LOADS,
        BATCHES,
        PROXY_REPORTS,
        PROXY_REPLIES,
    ],
)
def test_strategies_cover_every_field(strategy: st.SearchStrategy[object]) -> None:
    builds = strategy.wrapped_strategy  # type: ignore[attr-defined]
    assert set(builds.kwargs) == {field.name for field in fields(builds.target)}
