"""``top``, and what ``describe`` and ``agents`` say that is used."""

import json

import pytest
from played import batch
from rest_manager import RestManager

from conftest import Run
from fairlead.cli.verbs.top import Sort, by_most
from fairlead.common.stats import AgentStats
from fairlead.common.status import AgentStatus, Status


def test_sessions(manager: RestManager, fairlead: Run) -> None:
    for name in ("one", "two"):
        manager.add_session(batch(name), status=Status.RUNNING, script=[])
    manager.add_session(batch("waits"))
    head, *lines = fairlead("top").stdout.splitlines()
    assert head.split()[:4] == ["NAME", "CPU", "%", "MEM"]
    first, second = (line.split() for line in lines)
    assert first[:5] == ["one", "1.50", "50", "2GiB", "25"]
    assert first[5:9] == ["0.75", "40GiB", "2KiB", "1KiB"]
    assert second[0] == "two"
    assert "ada" in fairlead("top", "-o", "wide").stdout
    assert fairlead("top", "-o", "name", "-n", "1").stdout == "one\n"
    found = json.loads(fairlead("top", "-o", "json").stdout)["sessions"]
    assert [one["latest"]["cpu"] for one in found] == [1500, 1500]


def test_nothing_runs(fairlead: Run) -> None:
    result = fairlead("top", "--once")
    assert result.stdout == ""
    assert "fairlead ps" in result.stderr


def test_agents_and_devices(fairlead: Run) -> None:
    _, *lines = fairlead("top", "--agents").stdout.splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["agent-2", "3.00", "75", "4GiB", "25"], ["agent-1", "1.00", "25", "4GiB", "25"],
    ]  # fmt: skip
    _, first, _ = fairlead("top", "--devices").stdout.splitlines()
    assert first.split() == ["agent-2", "GPU-agent-2", "H100", "42%", "20GiB", "25", "55", "°C", "70", "W"]
    assert [a["id"] for a in json.loads(fairlead("top", "-A", "-o", "json").stdout)["agents"]] == [
        "agent-2",
        "agent-1",
    ]


def agent(name: str, **used: int) -> AgentStats:
    return AgentStats(
        id=name, status=AgentStatus.ALIVE, resource_group="default", offered_cpu=1, offered_memory=1,
        devices=[], **used,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sort", "names"), [(Sort.CPU, "bac"), (Sort.MEMORY, "abc"), (Sort.GPU, "abc"), (Sort.RX, "abc")]
)
def test_order(sort: Sort, names: str) -> None:
    found = [agent("c"), agent("a", cpu=1, memory=9), agent("b", cpu=2, memory=3)]
    assert [view.id for view in by_most(found, sort)] == list(names)


def test_describe_shows_what_a_running_session_uses(manager: RestManager, fairlead: Run) -> None:
    made = manager.add_session(batch("job"), status=Status.RUNNING, script=[])
    assert made.view().kernels
    shown = fairlead("describe", "job").stdout
    assert "uses          cpu 1.50, mem 2GiB, gpu 0.75, gpu mem 40GiB, network 2KiB/s in" in shown
    assert json.loads(fairlead("describe", "job", "-o", "json").stdout)["stats"]["name"] == "job"
    assert "uses          cpu 2.00, mem 4GiB" in fairlead("agents", "agent-1").stdout
