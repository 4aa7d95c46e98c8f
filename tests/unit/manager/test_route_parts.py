"""The route table in parts: a proxy that applies the changes has the whole table."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import (
    AccessTokenGrant,
    AppRoute,
    KeyGrant,
    ModelRoute,
    ProjectGrant,
    RequestLimits,
    RouteTable,
    Target,
)
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.ids import KernelId, SessionId
from moorage.manager.serving.route_parts import RouteParts
from moorage.proxy.core.routes import (
    IndexedTable,
    StaleTable,
    credentials_change,
    newest_table,
    with_credentials,
)

NAMES = st.sampled_from("abcde")
WORLDS = st.fixed_dictionaries(
    {
        "models": st.dictionaries(NAMES, st.integers(0, 3)),  # with this many replicas
        "keys": st.dictionaries(NAMES, st.integers(0, 2)),
        "apps": st.dictionaries(st.tuples(NAMES, NAMES), st.integers(1, 3)),
        "access_tokens": st.dictionaries(NAMES, st.integers(0, 2)),
        "revoked_agents": st.dictionaries(NAMES, st.just(0)),
    }
)


def table(world: dict[str, dict[str, int]]) -> RouteTable:
    def target(model: str, n: int) -> Target:
        return Target(
            SessionId("s"),
            KernelId(f"{model}{n}"),
            host="127.0.0.1",
            port=1000 + n,
            key="key",
            engine="vllm",
        )

    return RouteTable(
        0,
        tuple(
            ModelRoute(m, 1, tuple(target(m, i) for i in range(n)))
            for m, n in world["models"].items()
        ),
        keys=tuple(KeyGrant(name, expires_at=at) for name, at in world["keys"].items()),
        apps=tuple(
            AppRoute(
                SessionId(session),
                app,
                protocol="http",
                base_path=False,
                host="127.0.0.1",
                port=port,
                key="",
            )
            for (session, app), port in world["apps"].items()
        ),
        access_tokens=tuple(
            AccessTokenGrant(name, SessionId("s"), "a", at)
            for name, at in world["access_tokens"].items()
        ),
        revoked_agents=tuple(world["revoked_agents"]),
    )


def received(message: bytes) -> RouteTable:
    return routes_from_wire(routes_pb2.RouteTable.FromString(message))


def contents(indexed: IndexedTable) -> list[frozenset[object]]:
    whole = indexed.whole()
    parts = whole.models, whole.keys, whole.apps, whole.access_tokens, whole.revoked_agents
    return [frozenset(part) for part in parts]


@examples(60)
@given(st.lists(WORLDS, min_size=1, max_size=8))
def test_changes_make_the_whole_table(worlds: list[dict[str, dict[str, int]]]) -> None:
    parts = RouteParts()
    generation = 1
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
        assert held.kernels.keys() == {
            target.kernel_id for route in now.models for target in route.targets
        }
        assert not parts.update(table(world)), "equal routes are no change"


@examples(60)
@given(st.lists(WORLDS, min_size=1, max_size=8))
def test_told_changes_make_the_whole_table(worlds: list[dict[str, dict[str, int]]]) -> None:
    """The store reports which models and service ports have changed."""
    parts = RouteParts()
    last = RouteTable(0, (), ())
    held = IndexedTable(received(parts.message(1)))
    for generation, world in enumerate(worlds, 2):
        now = table(world | {"keys": {}, "access_tokens": {}, "revoked_agents": {}})
        told = RouteTable(
            0,
            tuple(set(now.models) - set(last.models)),
            (),
            tuple(set(now.apps) - set(last.apps)),
            removed_models=tuple({m.name for m in last.models} - {m.name for m in now.models}),
            removed_apps=tuple(
                {f"{a.session_id}/{a.app}" for a in last.apps}
                - {f"{a.session_id}/{a.app}" for a in now.apps}
            ),
        )
        newest_table(held, received(parts.apply(told).message(generation, generation - 1)))
        assert contents(held) == contents(IndexedTable(now))
        assert contents(IndexedTable(received(parts.message(generation)))) == contents(held)
        assert not parts.apply(told).parts, "equal routes are no change"
        last = now


def test_credentials_apart_make_the_same_table() -> None:
    routes = RouteTable(5, (ModelRoute("m", 1),), ())
    limits = RequestLimits(tokens_per_minute=1)
    credentials = RouteTable(
        9,
        (),
        (KeyGrant("a"), KeyGrant("b")),
        projects=(ProjectGrant("p", limits), ProjectGrant("q", limits)),
    )
    held = IndexedTable(with_credentials(routes, credentials))
    assert (held.generation, held.limits_of_project("p")) == (5, limits)
    fewer = RouteTable(
        10, (), (KeyGrant("b", expires_at=7),), projects=(ProjectGrant("p", limits),)
    )
    newest_table(held, credentials_change(held, fewer))
    assert contents(held) == contents(IndexedTable(with_credentials(routes, fewer)))
    assert (held.limits_of_project("q"), held.generation) == (None, 5)
    changed = RouteTable(
        11, (), (KeyGrant("c"),), base=10, removed_keys=("b",), removed_projects=("p",)
    )
    newest_table(held, credentials_change(held, changed))
    assert [key.sha256 for key in held.whole().keys] == ["c"]
    assert held.limits_of_project("p") is None


def test_nothing_is_routed_to_a_revoked_agent_in_whatever_order_the_news_arrive() -> None:
    def at(peer_id: str) -> Target:
        return Target(
            SessionId("s"),
            KernelId(peer_id),
            host="h",
            port=1,
            key="key",
            engine="vllm",
            peer_id=peer_id,
            adapters=("m:a",),
        )

    models = (
        ModelRoute("m", 1, (at("lost"), at("kept")), adapters=("m:a",)),
        ModelRoute("n", 1, (at("lost"),)),
    )
    apps = tuple(
        AppRoute(
            SessionId(peer_id),
            "web",
            protocol="http",
            base_path=False,
            host="h",
            port=2,
            key="",
            peer_id=peer_id,
        )
        for peer_id in ("lost", "kept")
    )
    news = [
        RouteTable(1, models, (), apps, base=1),
        RouteTable(1, (), (), base=1, revoked_agents=("lost",)),
        RouteTable(1, (models[0],), (), apps[:1], base=1),
    ]
    for order in permutations(news):
        held = IndexedTable(RouteTable(1, (), ()))
        for change in order:
            held.change(change)

        assert {
            route.name: [t.kernel_id for t in route.targets] for route in held.models.values()
        } == {
            "m": ["kept"],
            "n": [],
        }
        assert held.kernels.keys() == {"kept"}
        assert held.adapters.keys() == {"m:a"}
        assert [target.kernel_id for target in held.adapters["m:a"].targets] == ["kept"]
        assert held.apps.keys() == {("kept", "web")}


def test_revoked_agents_come_and_go_with_the_credentials() -> None:
    held = IndexedTable(RouteTable(1, (), (), revoked_agents=("a", "b")))
    newest_table(held, credentials_change(held, RouteTable(2, (), (), revoked_agents=("b", "c"))))
    assert held.revoked_agents == {"b", "c"}
    newest_table(held, with_credentials(RouteTable(3, (), ()), held.whole()))
    assert held.revoked_agents == {"b", "c"}


def test_changes_to_another_table_are_refused() -> None:
    held = IndexedTable(RouteTable(5, (ModelRoute("m", 1),), ()))
    change = RouteTable(8, (ModelRoute("n", 1),), (), base=7)
    assert newest_table(held, change) == StaleTable(held=5, offered=8)
    assert held.models.keys() == {"m"}
