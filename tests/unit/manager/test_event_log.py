"""The event log: order, resumption, who sees what, and watchers that fall behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.manager.events.log import EncodedEvent, EventLog
from moorage.manager.identity.audience import Audience

ALL = Audience()


def event(
    number: int, kind: str = "session", project: str | None = None, group: str = ""
) -> EncodedEvent:
    return EncodedEvent(kind, str(number), None if project is None else frozenset({project}), group)


def data(text: bytes | None) -> list[str]:
    assert text is not None
    return [
        line.removeprefix("data: ")
        for line in text.decode().splitlines()
        if line.startswith("data: ")
    ]


def test_an_event_has_id_kind_and_data() -> None:
    log = EventLog("e")
    log.append([event(7)])
    assert log.read(ALL, 0) == b"id: e-1\nevent: session\ndata: 7\n\n"


def test_resumption() -> None:
    log = EventLog("e", capacity=3)
    log.append([event(n) for n in range(5)])
    assert log.position_after("e-5") == 5
    assert log.position_after("e-2") == 2
    assert data(log.read(ALL, 2)) == ["2", "3", "4"]
    for unknown in ("e-1", "e-6", "f-5", "e-", "e--1", "e-٣", "", "5", "e-" + "9" * 40):
        assert log.position_after(unknown) is None, unknown
    assert log.read(ALL, 1) is None


def test_who_sees_what() -> None:
    log = EventLog("e")
    log.append(
        [
            event(1, project="a"),
            event(2, project="b"),
            event(3, "agent", group="g"),
            event(4, "group", group="h"),
        ]
    )
    assert data(log.read(ALL, 0)) == ["1", "2", "3", "4"]
    assert data(log.read(Audience(frozenset({"a"})), 0)) == ["1", "3", "4"]
    assert data(log.read(Audience(frozenset({"a"}), frozenset({"g"})), 0)) == ["1", "3"]
    log.append([EncodedEvent("budget", "5", frozenset(), user="ann")])
    assert data(log.read(Audience(frozenset({"a"}), user="ann"), 4)) == ["5"]
    assert data(log.read(Audience(frozenset({"a"})), 4)) == []
    assert data(log.read(ALL, 4)) == ["5"]
    assert data(log.read(Audience(kinds=frozenset({"agent"})), 0)) == ["3"]


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=12),
    st.lists(st.sampled_from("abc"), unique=True),
    st.integers(1, 8),
)
def test_a_watcher_sees_each_of_its_events_once_and_in_order_or_is_told(
    batches: list[list[str]], projects: list[str], capacity: int
) -> None:
    log = EventLog("e", capacity)
    seen = []
    position = 0
    expected = []
    number = 0
    audience = Audience(frozenset(projects))
    for index, batch in enumerate(batches):
        events = []
        for project in batch:
            number += 1
            events.append(event(number, project=project))
            expected += [str(number)] if project in projects else []

        log.append(events)
        if index % 2:
            continue  # it reads only every other batch

        found = log.read(audience, position)
        if found is None:
            assert log.end - position > capacity
            seen = list(expected)
        else:
            seen += data(found)

        position = log.end
        assert seen == expected
