"""Route table in parts: a proxy that applies the changes has the whole table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.messages import (
    AccessTokenGrant,
    AppRoute,
    KeyGrant,
    ModelRoute,
    RouteTable,
    Target,
)
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.ids import KernelId, SessionId
from moorage.manager.serving.route_parts import RouteParts
from moorage.proxy.core.routes import IndexedTable, StaleTable, newest_table

NAMES = st.sampled_from("abcde")
WORLDS = st.fixed_dictionaries(
    {
        "models": st.dictionaries(NAMES, st.integers(0, 3)),  # with so many replicas
        "keys": st.dictionaries(NAMES, st.integers(0, 2)),
        "apps": st.dictionaries(st.tuples(NAMES, NAMES), st.integers(1, 3)),
        "access_tokens": st.dictionaries(NAMES, st.integers(0, 2)),
    }
)


def table(world: dict[str, dict[str, int]]) -> RouteTable:
    def target(model: str, n: int) -> Target:
        return Target(SessionId("s"), KernelId(f"{model}{n}"), "127.0.0.1", 1000 + n, "key", "vllm")

    return RouteTable(
        0,
        tuple(ModelRoute(m, 1, tuple(target(m, i) for i in range(n))) for m, n in world["models"].items()),
        tuple(KeyGrant(name, expires_at=at) for name, at in world["keys"].items()),
        tuple(
            AppRoute(SessionId(session), app, "http", False, "127.0.0.1", port, "")
            for (session, app), port in world["apps"].items()
        ),
        tuple(AccessTokenGrant(name, SessionId("s"), "a", at) for name, at in world["access_tokens"].items()),
    )


def received(message: bytes) -> RouteTable:
    return routes_from_wire(routes_pb2.RouteTable.FromString(message))


def contents(indexed: IndexedTable) -> list[frozenset[object]]:
    whole = indexed.whole()
    return [frozenset(part) for part in (whole.models, whole.keys, whole.apps, whole.access_tokens)]


@given(st.lists(WORLDS, min_size=1, max_size=8))
def test_changes_make_the_whole_table(worlds: list[dict[str, dict[str, int]]]) -> None:
    parts, generation = RouteParts(), 1
    held = IndexedTable(received(parts.message(generation)))
    for world in worlds:
        now = table(world)
        changes = parts.update(now)
        assert bool(changes) == (contents(held) != contents(IndexedTable(now)))
        result = newest_table(held, received(changes.message(generation + 1, generation)))
        generation += 1
        assert result is held
        assert contents(held) == contents(IndexedTable(now))
        assert contents(IndexedTable(received(parts.message(generation)))) == contents(held)
        assert held.kernels == {target.kernel_id for route in now.models for target in route.targets}
        assert not parts.update(table(world)), "equal routes are no change"


def test_changes_to_another_table_are_refused() -> None:
    held = IndexedTable(RouteTable(5, (ModelRoute("m", 1),), ()))
    change = RouteTable(8, (ModelRoute("n", 1),), (), base=7)
    assert newest_table(held, change) == StaleTable(held=5, offered=8)
    assert held.models.keys() == {"m"}
