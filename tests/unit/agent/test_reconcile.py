"""The agent's brain: each case by name, then a model world in which anything may happen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agent.kernel.reconcile import Action, Adopt, Create, Destroy, Remove, Stop, accepts, reconcile
from moorage.common.link.messages import Orders
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType


def spec(name: str) -> KernelSpec:
    return KernelSpec(
        KernelId(name),
        SessionId(f"s-{name}"),
        name,
        SessionType.BATCH,
        "fake",
        "custom",
        name,
        stop_grace_s=7,
    )


A, B = spec("a"), spec("b")
ORDERED, WITHDRAWN = Orders(1, (A,)), Orders(2, ())
KNOWN = {A.kernel_id: A}

CASES: list[tuple[str, Orders | None, dict[KernelId, KernelSpec], dict[KernelId, S], list[Action]]] = [
    ("not connected: nothing is touched", None, KNOWN, {A.kernel_id: S.RUNNING, B.kernel_id: S.UNKNOWN}, []),
    ("not connected: not even what has ended", None, KNOWN, {A.kernel_id: S.EXITED}, []),
    ("new", ORDERED, {}, {}, [Create(A)]),
    ("ordered twice in one order", Orders(1, (A, A)), {}, {}, [Create(A)]),
    ("lost by the ledger, found by looking", ORDERED, {}, {A.kernel_id: S.UNKNOWN}, [Adopt(A)]),
    ("found, and nobody wants it", WITHDRAWN, {}, {A.kernel_id: S.UNKNOWN}, [Destroy(A.kernel_id)]),
    *((f"ordered and {state}: kept", ORDERED, KNOWN, {A.kernel_id: state}, []) for state in S),
    *(
        (f"withdrawn while {state}", WITHDRAWN, KNOWN, {A.kernel_id: state}, [Stop(A.kernel_id, 7)])
        for state in (S.PREPARING, S.CREATING, S.RUNNING)
    ),
    *(
        (f"withdrawn when {state}", WITHDRAWN, KNOWN, {A.kernel_id: state}, [Remove(A.kernel_id)])
        for state in (S.EXITED, S.GONE)
    ),
    *(
        (f"withdrawn, {state}: wait", WITHDRAWN, KNOWN, {A.kernel_id: state}, [])
        for state in (S.STOPPING, S.UNKNOWN)
    ),
    ("withdrawn and not observed is unknown", WITHDRAWN, KNOWN, {}, []),
    (
        "what ends comes first",
        Orders(3, (B,)),
        KNOWN,
        {A.kernel_id: S.RUNNING},
        [Stop(A.kernel_id, 7), Create(B)],
    ),
]


@pytest.mark.parametrize(
    ("name", "orders", "ledger", "observed", "actions"), CASES, ids=[c[0] for c in CASES]
)
def test_cases(
    name: str,
    orders: Orders | None,
    ledger: dict[KernelId, KernelSpec],
    observed: dict[KernelId, S],
    actions: list[Action],
) -> None:
    assert reconcile(orders, ledger, observed) == actions


def test_only_older_orders_are_refused() -> None:
    assert [accepts(5, Orders(generation, ())) for generation in (4, 5, 6)] == [False, True, True]


NAMES = ("a", "b", "c")
Event = tuple[str, object]
events = st.one_of(
    st.tuples(st.just("order"), st.frozensets(st.sampled_from(NAMES))),
    st.tuples(st.just("replay"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["exit", "lose", "stray", "mute", "answer"]), st.sampled_from(NAMES)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("step"), st.none()),
)


@dataclass
class World:
    """A node with kernels, an agent with a ledger, and a manager whose messages may come late."""

    alive: dict[KernelId, S] = field(default_factory=dict)
    ledger: dict[KernelId, KernelSpec] = field(default_factory=dict)
    mute: set[KernelId] = field(default_factory=set)
    created: list[KernelId] = field(default_factory=list)
    sent: list[Orders] = field(default_factory=list)
    orders: Orders | None = None
    newest: int = 0

    def observed(self) -> dict[KernelId, S]:
        seen = {k: self.alive.get(k, S.GONE) for k in self.ledger} | self.alive
        return {k: S.UNKNOWN if k in self.mute else state for k, state in seen.items()}

    def take(self, orders: Orders) -> None:
        if accepts(self.newest, orders):
            self.orders, self.newest = orders, orders.generation

    def step(self) -> list[Action]:
        actions = reconcile(self.orders, dict(self.ledger), self.observed())
        for action in actions:
            match action:
                case Create(one):
                    assert one.kernel_id not in self.alive, "created beside one that lives"
                    self.created.append(one.kernel_id)
                    self.ledger[one.kernel_id] = one
                    self.alive[one.kernel_id] = S.RUNNING
                case Adopt(one):
                    self.ledger[one.kernel_id] = one
                case Stop(kernel_id, _):
                    self.alive[kernel_id] = S.EXITED
                case Destroy(kernel_id):
                    self.alive.pop(kernel_id, None)
                case Remove(kernel_id):
                    self.alive.pop(kernel_id, None)
                    del self.ledger[kernel_id]
        return actions

    def order(self, names: frozenset[str], ids: dict[str, int]) -> None:
        # The manager never orders a kernel again that it withdrew: a new try has a new id.
        before = {k.session_name for k in self.sent[-1].kernels} if self.sent else set()
        for name in names - before:
            ids[name] = ids.get(name, 0) + 1
        kernels = tuple(replace(spec(f"{n}{ids[n]}"), session_name=n) for n in sorted(names))
        self.sent.append(Orders(len(self.sent) + 1, kernels))
        self.take(self.sent[-1])

    def happen(self, what: str, value: object, ids: dict[str, int]) -> None:
        match what, value:
            case "order", frozenset() as names:
                self.order(names, ids)
            case "replay", int(at):
                if self.sent:
                    self.take(self.sent[at % len(self.sent)])
            case "restart", _:
                self.orders = None  # the ledger and the newest generation stay
            case "step", _:
                self.step()
            case _, str(name):
                self.befall(what, name, KernelId(f"{name}{ids.get(name, 0)}"))

    def befall(self, what: str, name: str, kernel_id: KernelId) -> None:
        match what:
            case "exit" if kernel_id in self.alive:
                self.alive[kernel_id] = S.EXITED
            case "lose":
                self.ledger.pop(kernel_id, None)
            case "stray":
                self.alive[KernelId(f"stray-{name}")] = S.RUNNING
            case "mute":
                self.mute.add(kernel_id)
            case "answer":
                self.mute.discard(kernel_id)


@settings(max_examples=300, deadline=None)
@given(st.lists(events, max_size=30))
def test_it_converges_and_never_creates_twice(story: list[Event]) -> None:
    world, ids = World(), dict[str, int]()
    for what, value in story:
        world.happen(what, value, ids)
        if world.orders is not None:
            assert world.orders.generation == max(o.generation for o in world.sent)
    # At last all is quiet: the runtime answers, and the manager says what it wants once more.
    world.mute.clear()
    wanted = world.sent[-1] if world.sent else Orders(1, ())
    world.take(wanted)
    for _ in range(4):
        world.step()
    assert world.step() == [], "it does not come to rest"
    assert set(world.ledger) == {k.kernel_id for k in wanted.kernels}
    assert set(world.alive) <= set(world.ledger)
    lost = {KernelId(f"{name}{ids[name]}") for what, name in story if what == "lose" and name in ids}  # type: ignore[index]
    for kernel_id in set(world.created) - lost:
        assert world.created.count(kernel_id) == 1
