"""Report deltas: the receiver follows the sender and detects drift, whichever fields either side
has."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.deltas import SetDigest
from moorage.common.link.messages import AgentInfo, Observation, Report, ReportDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.link.sync import ReportReceiver, ReportSender
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.status import ObservedState

EMPTY = Report(
    AgentInfo(
        AgentId("a"),
        "default",
        address="h",
        version="1",
        arch="x86_64",
        runtimes=(),
        engines=(),
        offers=(),
    ),
    "i",
    0,
    (),
)
# Field 99, which does not exist in any release.
UNKNOWN_FIELD = b"\x98\x06\x01"
worlds = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)), min_size=2, max_size=12
)


def report(ports: dict[str, int]) -> Report:
    running = ObservedState.RUNNING
    kernels = (
        Observation(KernelId(k), SessionId("s"), running, port=port) for k, port in ports.items()
    )
    return replace(EMPTY, kernels=tuple(kernels))


def follow(known: dict[str, int], message: Report | ReportDelta) -> dict[str, int]:
    kept = known if isinstance(message, ReportDelta) else {}
    removed = message.removed if isinstance(message, ReportDelta) else ()
    return {k: v for k, v in kept.items() if k not in removed} | {
        k.kernel_id: k.port for k in message.kernels
    }


@given(worlds)
def test_receiver_follows_sender(states: list[dict[str, int]]) -> None:
    sender = ReportSender(deltas=True)
    receiver = ReportReceiver()
    known: dict[str, int] = {}
    for n, state in enumerate(states):
        message = receiver.receive(sender.next_message(report(state)))
        assert message is not None
        assert isinstance(message, ReportDelta) is (n > 0)

        if n:
            assert {k.kernel_id for k in message.kernels} == {
                k for k, v in state.items() if known.get(k) != v
            }

        known = follow(known, message)
        assert known == state
        assert all(receiver.reports(KernelId(k)) is (k in state) for k in "abcdef")


@given(worlds, st.data())
def test_next_delta_reveals_a_lost_one(states: list[dict[str, int]], data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, len(states) - 1))
    sender = ReportSender(deltas=True)
    receiver = ReportReceiver()
    known: dict[str, int] | None = {}
    for n, state in enumerate(states):
        wire = sender.next_message(report(state))
        if n == lost:
            continue

        message = receiver.receive(wire)
        known = None if message is None or known is None else follow(known, message)
        assert known in (None, state), "the receiver accepted a delta to another state"

    sender.force_full()
    assert receiver.receive(sender.next_message(report(states[0]))) == report(states[0])


def test_fields_of_a_newer_release_do_not_change_the_digest() -> None:
    sender = ReportSender(deltas=True)
    receiver = ReportReceiver()
    newer = SetDigest()
    for ports in ({"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}):
        wire = sender.next_message(report(ports))
        for index, content in enumerate(wire.kernels):
            # The unknown field precedes the fields of this release, so that encoding it again
            # produces different bytes.
            wire.kernels[index] = UNKNOWN_FIELD + content

        ids = [agent_pb2.Observation.FromString(content).kernel_id for content in wire.kernels]
        newer.change(zip(ids, wire.kernels, strict=True))
        if wire.delta:
            wire.content_digest = newer.value

        message = receiver.receive(agent_pb2.Report.FromString(wire.SerializeToString()))
        assert message is not None, "drift between two releases"


def test_delta_of_the_previous_release_is_accepted() -> None:
    sender = ReportSender(deltas=True)
    receiver = ReportReceiver()
    receiver.receive(sender.next_message(report({})))
    wire = sender.next_message(report({"a": 1}))
    wire.ClearField("content_digest")
    assert receiver.receive(wire) is not None


def test_reports_are_full_until_the_manager_accepts_deltas() -> None:
    sender = ReportSender()
    assert not any(sender.next_message(report({"a": n})).delta for n in range(3))
    sender.allow_deltas(True)
    assert sender.next_message(report({"a": 4})).delta


def test_digest_ignores_order_but_not_contents() -> None:
    one = SetDigest()
    two = SetDigest()
    one.change([("a", b"1"), ("b", b"2")])
    two.change([("b", b"2"), ("a", b"1")])
    assert one.value == two.value
    two.change([("a", b"9")])
    assert one.value != two.value
    two.change([("a", b"1")])
    assert one.value == two.value
