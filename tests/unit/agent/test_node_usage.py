"""The number of a site's nodes in use: what Slurm prints, and how often a site is queried."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.batch.nodes import ASK_EVERY_S, NodeUsage
from moorage.agent.runtimes.slurm.commands import parse_nodes
from moorage.common.aio.clock import ManualClock
from moorage.common.model.kernel import SiteNodes


@pytest.mark.parametrize(
    ("output", "partition", "nodes"),
    [
        ("gpu*|3/4/1/8\n", "", (SiteNodes("gpu", 4, 8),)),  # one of them is down
        ("cpu|0/2/0/2\ngpu*|8/0/0/8\n", "", (SiteNodes("gpu", 8, 8),)),
        ("cpu|0/2/0/2\n", "cpu", (SiteNodes("cpu", 0, 2),)),
        ("cpu|0/2/0/2\nbig|1/1/0/2\n", "", (SiteNodes("cpu", 0, 2), SiteNodes("big", 1, 2))),
        ("slurm_load_partitions: error\nmain|up\n", "", ()),
        ("", "gpu", ()),
    ],
)
def test_nodes_are_read_from_sinfo(
    output: str, partition: str, nodes: tuple[SiteNodes, ...]
) -> None:
    assert parse_nodes(output, partition) == nodes


class Site:
    def __init__(self) -> None:
        self.used = 1
        self.calls = 0
        self.is_down = False

    async def ask(self) -> tuple[SiteNodes, ...]:
        self.calls += 1
        if self.is_down:
            raise RuntimeFailed("it is down")
        return (SiteNodes("gpu", self.used, 4),)


async def test_site_is_asked_now_and_then_and_its_silence_is_forgotten() -> None:
    site = Site()
    clock = ManualClock()
    usage = NodeUsage(site.ask, clock)
    assert usage.current() == ()
    for _ in range(10):
        await usage.refresh()

    assert (site.calls, usage.current()) == (1, (SiteNodes("gpu", 1, 4),))
    site.used = 4
    clock.advance(ASK_EVERY_S)
    await usage.refresh()
    assert (site.calls, usage.current()) == (2, (SiteNodes("gpu", 4, 4),))
    site.is_down = True
    clock.advance(ASK_EVERY_S)
    await usage.refresh()
    assert usage.current() == (SiteNodes("gpu", 4, 4),)
    for _ in range(5):
        clock.advance(ASK_EVERY_S)
        await usage.refresh()

    assert (site.calls, usage.current()) == (8, ())
