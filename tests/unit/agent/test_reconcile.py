"""An agent's reconciliation: a table of cases, then a model under random events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.kernel.reconcile import (
    Action,
    Adopt,
    Create,
    Destroy,
    ReloadProgram,
    Remove,
    Stop,
    Suspend,
    accepts,
    reconcile,
)
from moorage.common.link.messages import Orders, OrdersDelta
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType


def spec(name: str) -> KernelSpec:
    return KernelSpec(
        KernelId(name),
        SessionId(f"s-{name}"),
        session_name=name,
        session_type=SessionType.BATCH,
        runtime="fake",
        engine="custom",
        served_name=name,
        stop_grace_s=7,
    )


A = spec("a")
B = spec("b")
A5 = replace(A, reload_generation=5)
A6 = replace(A, reload_generation=6)
SUSPENDED = replace(A, suspended=True)
ORDERED = Orders(1, (A,))
WITHDRAWN = Orders(2, ())
KNOWN = {A.kernel_id: A}


def mapping(orders: Orders) -> dict[KernelId, KernelSpec]:
    return {one.kernel_id: one for one in orders.kernels}


CASES: list[
    tuple[str, Orders | None, dict[KernelId, KernelSpec], dict[KernelId, S], list[Action]]
] = [
    (
        "not connected: nothing is touched",
        None,
        KNOWN,
        {A.kernel_id: S.RUNNING, B.kernel_id: S.UNKNOWN},
        [],
    ),
    ("not connected: an ended kernel is kept", None, KNOWN, {A.kernel_id: S.EXITED}, []),
    ("new", ORDERED, {}, {}, [Create(A)]),
    ("ordered twice in one order", Orders(1, (A, A)), {}, {}, [Create(A)]),
    (
        "lost by the checkpoint, found by a runtime",
        ORDERED,
        {},
        {A.kernel_id: S.UNKNOWN},
        [Adopt(SUSPENDED)],  # it may be suspended, so it is resumed
    ),
    ("found and not ordered", WITHDRAWN, {}, {A.kernel_id: S.UNKNOWN}, [Destroy(A.kernel_id)]),
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
    ("withdrawn and not observed: unknown, wait", WITHDRAWN, KNOWN, {}, []),
    *(
        (
            f"to reload while {state}",
            Orders(1, (A6,)),
            {A.kernel_id: A5},
            {A.kernel_id: state},
            actions,
        )
        for state in S
        for actions in ([ReloadProgram(A.kernel_id, 6)] if state is S.RUNNING else [],)
    ),
    ("has reloaded", Orders(1, (A6,)), {A.kernel_id: A6}, {A.kernel_id: S.RUNNING}, []),
    ("orders of before", Orders(1, (A5,)), {A.kernel_id: A6}, {A.kernel_id: S.RUNNING}, []),
    ("new: it begins with the newest settings", Orders(1, (A6,)), {}, {}, [Create(A6)]),
    (
        "found: whether it has reloaded was lost",
        Orders(1, (A6,)),
        {},
        {A.kernel_id: S.RUNNING},
        [Adopt(SUSPENDED)],
    ),
    *(
        (f"to suspend while {state}", Orders(1, (SUSPENDED,)), KNOWN, {A.kernel_id: state}, actions)
        for state in S
        for actions in ([Suspend(A.kernel_id, True)] if state is S.RUNNING else [],)
    ),
    (
        "to resume",
        ORDERED,
        {A.kernel_id: SUSPENDED},
        {A.kernel_id: S.RUNNING},
        [Suspend(A.kernel_id, False)],
    ),
    (
        "suspended",
        Orders(1, (SUSPENDED,)),
        {A.kernel_id: SUSPENDED},
        {A.kernel_id: S.RUNNING},
        [],
    ),
    (
        "withdrawn while suspended",
        WITHDRAWN,
        {A.kernel_id: SUSPENDED},
        {A.kernel_id: S.RUNNING},
        [Stop(A.kernel_id, 7)],
    ),
    (
        "suspended and lost: adopted",
        Orders(1, (SUSPENDED,)),
        {},
        {A.kernel_id: S.RUNNING},
        [Adopt(A)],
    ),
    ("new: it runs at first", Orders(1, (SUSPENDED,)), {}, {}, [Create(A)]),
    (
        "terminations come first",
        Orders(3, (B,)),
        KNOWN,
        {A.kernel_id: S.RUNNING},
        [Stop(A.kernel_id, 7), Create(B)],
    ),
]


def test_kernel_that_an_unlisted_runtime_may_have_is_not_created() -> None:
    """Its checkpoint entry may have been unreadable."""
    assert reconcile(KNOWN, {}, {}, unlisted={"fake"}) == []
    assert reconcile(KNOWN, {}, {}, unlisted={"docker"}) == [Create(A)]
    assert reconcile(KNOWN, {}, {A.kernel_id: S.UNKNOWN}, unlisted={"fake"}) == [Adopt(SUSPENDED)]


@pytest.mark.parametrize(
    ("name", "orders", "checkpoint", "observed", "actions"), CASES, ids=[c[0] for c in CASES]
)
def test_cases(
    name: str,
    orders: Orders | None,
    checkpoint: dict[KernelId, KernelSpec],
    observed: dict[KernelId, S],
    actions: list[Action],
) -> None:
    ordered = None if orders is None else mapping(orders)
    assert reconcile(ordered, checkpoint, observed) == actions
    each = [reconcile(ordered, checkpoint, observed, (), among=[one.kernel_id]) for one in (A, B)]
    assert [*each[0], *each[1]] == actions, "what happens to a kernel depends on no other"


def test_only_older_orders_are_refused() -> None:
    assert [accepts(5, 5, Orders(generation, ())) for generation in (4, 5, 6)] == [
        False,
        True,
        True,
    ]


def test_delta_to_other_orders_is_refused() -> None:
    deltas = [OrdersDelta(9, base, added=(), withdrawn=frozenset(), digest=0) for base in (4, 5, 6)]
    assert [accepts(6, 5, delta) for delta in deltas] == [False, True, False]


NAMES = ("a", "b", "c")
Event = tuple[str, object]
events = st.one_of(
    st.tuples(st.just("order"), st.frozensets(st.sampled_from(NAMES))),
    st.tuples(st.just("replay"), st.integers(0, 20)),
    st.tuples(
        st.sampled_from(["exit", "lose", "orphan", "hang", "recover"]), st.sampled_from(NAMES)
    ),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("step"), st.none()),
)


@dataclass
class World:
    """A node with kernels, an agent with a checkpoint, and a manager whose messages may be late."""

    alive: dict[KernelId, S] = field(default_factory=dict)
    checkpoint: dict[KernelId, KernelSpec] = field(default_factory=dict)
    unresponsive: set[KernelId] = field(default_factory=set)
    created: list[KernelId] = field(default_factory=list)
    sent: list[Orders] = field(default_factory=list)
    orders: Orders | None = None
    newest: int = 0

    def observed(self) -> dict[KernelId, S]:
        states = {k: self.alive.get(k, S.GONE) for k in self.checkpoint} | self.alive
        return {k: S.UNKNOWN if k in self.unresponsive else state for k, state in states.items()}

    def apply(self, orders: Orders) -> None:
        if accepts(self.newest, 0, orders):
            self.orders = orders
            self.newest = orders.generation

    def step(self) -> list[Action]:
        ordered = None if self.orders is None else mapping(self.orders)
        actions = reconcile(ordered, dict(self.checkpoint), self.observed())
        for action in actions:
            match action:
                case Create(one):
                    assert one.kernel_id not in self.alive, "created although it is alive"
                    self.created.append(one.kernel_id)
                    self.checkpoint[one.kernel_id] = one
                    self.alive[one.kernel_id] = S.RUNNING
                case Adopt(one):
                    self.checkpoint[one.kernel_id] = one
                case Suspend(kernel_id, suspended):
                    spec = self.checkpoint[kernel_id]
                    self.checkpoint[kernel_id] = replace(spec, suspended=suspended)
                case Stop(kernel_id, _):
                    self.alive[kernel_id] = S.EXITED
                case Destroy(kernel_id):
                    self.alive.pop(kernel_id, None)
                case Remove(kernel_id):
                    self.alive.pop(kernel_id, None)
                    del self.checkpoint[kernel_id]

        return actions

    def order(self, names: frozenset[str], ids: dict[str, int]) -> None:
        # The manager never orders a withdrawn kernel again: another attempt has another id.
        before = {k.session_name for k in self.sent[-1].kernels} if self.sent else set()
        for name in names - before:
            ids[name] = ids.get(name, 0) + 1
        kernels = tuple(replace(spec(f"{n}{ids[n]}"), session_name=n) for n in sorted(names))
        self.sent.append(Orders(len(self.sent) + 1, kernels))
        self.apply(self.sent[-1])

    def apply_event(self, event: str, value: object, ids: dict[str, int]) -> None:
        match event, value:
            case "order", frozenset() as names:
                self.order(names, ids)
            case "replay", int(at):
                if self.sent:
                    self.apply(self.sent[at % len(self.sent)])
            case "restart", _:
                self.orders = None  # the checkpoint and the newest generation survive
            case "step", _:
                self.step()
            case _, str(name):
                self.apply_kernel_event(event, name, KernelId(f"{name}{ids.get(name, 0)}"))

    def apply_kernel_event(self, event: str, name: str, kernel_id: KernelId) -> None:
        match event:
            case "exit" if kernel_id in self.alive:
                self.alive[kernel_id] = S.EXITED
            case "lose":
                self.checkpoint.pop(kernel_id, None)
            case "orphan":
                self.alive[KernelId(f"orphan-{name}")] = S.RUNNING
            case "hang":
                self.unresponsive.add(kernel_id)
            case "recover":
                self.unresponsive.discard(kernel_id)


@examples(300)
@given(st.lists(events, max_size=30))
def test_reconcile_converges_and_never_creates_twice(history: list[Event]) -> None:
    world = World()
    ids = dict[str, int]()
    for event, value in history:
        world.apply_event(event, value, ids)
        if world.orders is not None:
            assert world.orders.generation == max(o.generation for o in world.sent)

    # In the end the runtimes respond, and the manager sends its orders again.
    world.unresponsive.clear()
    orders = world.sent[-1] if world.sent else Orders(1, ())
    world.apply(orders)
    for _ in range(4):
        world.step()

    assert world.step() == [], "it does not converge"
    assert set(world.checkpoint) == {k.kernel_id for k in orders.kernels}
    assert set(world.alive) <= set(world.checkpoint)
    lost = {
        KernelId(f"{name}{ids[name]}") for event, name in history if event == "lose" and name in ids
    }  # type: ignore[index]
    for kernel_id in set(world.created) - lost:
        assert world.created.count(kernel_id) == 1
