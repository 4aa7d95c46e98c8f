"""Devices of another vendor, by the example of ``docs/devices.md``: offered, given, fenced, and back."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import manager_harness as h
import pytest
import pytest_asyncio
from manager_harness import client as client
from manager_harness import manager as manager
from test_usage_wire import eventually

from moorage.agent import Agent
from moorage.agent.devices import installed
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import OfferView
from moorage.manager import Manager
from moorage.sdk import Client

DOCS = Path(__file__).parents[2] / "docs" / "devices.md"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example, installed as a package; where its two devices show themselves."""
    code, toml = re.findall(r"```(?:python|toml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    site, root = tmp_path / "site", tmp_path / "acme"
    about = site / "acme_moorage-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "acme_moorage.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-moorage\nVersion: 1.0\n")
    entry = toml.splitlines()[1].replace('"', "")
    (about / "entry_points.txt").write_text(f"[moorage.inventories]\n{entry}\nbroken = no_such_module:X\n")
    for name in ("acme-0", "acme-1"):
        (root / name).mkdir(parents=True)
        for file, text in (("memory", "8000000000"), ("used", "0"), ("error", "")):
            (root / name / file).write_text(text)
    monkeypatch.setenv("ACME_ROOT", str(root))
    monkeypatch.syspath_prepend(str(site))
    yield root
    sys.modules.pop("acme_moorage", None)


@pytest_asyncio.fixture
async def agent(manager: Manager, acme: Path, tmp_path: Path) -> AsyncIterator[Agent]:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        docker="off",
        stats_interval_s=0.2,
        report_interval_s=0.5,
        device_probation_s=0.5,
        device_free_mem="1GiB",
        device_free_timeout_s=0.3,
    )
    async with Agent(
        settings, CommonSettings(), clock=SystemClock(), link_token=h.TOKEN, home=tmp_path / "agent"
    ) as made:
        yield made


async def offers(client: Client) -> dict[str, OfferView]:
    found = await client.list_agents()
    return {o.device_id: o for view in found for o in view.offers if o.slot == "acme.device"}


def job(name: str) -> SessionSpec:
    words = ["/bin/sh", "-c", "echo sees:$ACME_VISIBLE_DEVICES; sleep 600"]
    return SessionSpec(name=name, command=words, resources={"acme.device": 1})


async def until(client: Client, name: str, *statuses: Status) -> None:
    async def there() -> bool:
        return (await client.get_session(name)).status in statuses

    await eventually(there)


async def test_a_device_is_offered_given_and_measured(client: Client, agent: Agent, acme: Path) -> None:
    async def offered() -> bool:
        return set(await offers(client)) == {"acme-0", "acme-1"}

    await eventually(offered)
    await client.create_session(job("one"))
    await until(client, "one", Status.RUNNING)
    device = (await client.get_session("one")).kernels[0].devices[0].device_id

    async def said() -> bool:
        return f"sees:{device}\n".encode() in b"".join([part async for part in client.logs("one")])

    await eventually(said)
    (acme / device / "used").write_text("5000")

    async def measured() -> bool:
        node = await client.agent_stats("node-1")
        return {d.device_id: d.memory for d in node.devices}.get(device) == 5000

    await eventually(measured)
    # A device that is its own, and tells of no processes, counts whole.
    assert (await client.session_stats("one")).kernels[0].latest is not None
    await client.stop_session("one")
    await until(client, "one", Status.TERMINATED)


async def test_memory_that_is_not_free_keeps_the_next_kernel_away(
    client: Client, agent: Agent, acme: Path
) -> None:
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("5000000000")

    async def offered() -> bool:
        return len(await offers(client)) == 2

    await eventually(offered)
    await client.create_session(job("one"))

    async def fenced() -> bool:
        return not all(offer.healthy for offer in (await offers(client)).values())

    await eventually(fenced)
    (trouble,) = {offer.trouble for offer in (await offers(client)).values() if not offer.healthy}
    assert re.fullmatch(r"4\.66GiB of acme-[01] still in use, and the driver names no process", trouble)

    async def told() -> bool:
        entries = await client.history("one")
        return any(entry.reason is Reason.DEVICE_BUSY and trouble in entry.detail for entry in entries)

    await eventually(told)
    await client.stop_session("one")
    # It comes back by itself, when its memory is free and its probation is over.
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("0")

    async def back() -> bool:
        return all(offer.healthy and not offer.trouble for offer in (await offers(client)).values())

    await eventually(back)
    await client.create_session(job("two"))
    await until(client, "two", Status.RUNNING)
    await client.stop_session("two")
    await until(client, "two", Status.TERMINATED)


async def test_a_kernel_that_waits_for_memory_says_so_and_runs_when_it_is_free(
    manager: Manager, client: Client, acme: Path, tmp_path: Path
) -> None:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        docker="off",
        report_interval_s=0.5,
        device_free_timeout_s=60,
    )
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("5000000000")
    async with Agent(
        settings, CommonSettings(), clock=SystemClock(), link_token=h.TOKEN, home=tmp_path / "agent"
    ):
        await client.create_session(job("one"))

        async def waits() -> bool:
            session = await client.get_session("one")
            kernels = session.kernels
            return session.status is Status.PREPARING and "waiting for GPU memory" in kernels[0].detail

        await eventually(waits)
        for name in ("acme-0", "acme-1"):
            (acme / name / "used").write_text("0")
        await until(client, "one", Status.RUNNING)
        assert (await client.get_session("one")).kernels[0].detail == ""
        assert all(offer.healthy for offer in (await offers(client)).values())
        # One that waits can be stopped.
        for name in ("acme-0", "acme-1"):
            (acme / name / "used").write_text("5000000000")
        await client.create_session(job("two"))
        await until(client, "two", Status.PREPARING)
        for name in ("two", "one"):
            await client.stop_session(name)
            await until(client, name, Status.TERMINATED)


async def test_trouble_of_a_device_and_of_its_inventory(client: Client, agent: Agent, acme: Path) -> None:
    async def troubles(*expected: str) -> bool:
        return [offer.trouble for _, offer in sorted((await offers(client)).items())] == list(expected)

    await eventually(lambda: troubles("", ""))
    (acme / "acme-1" / "error").write_text("it burns\n")
    await eventually(lambda: troubles("", "it burns"))
    (acme / "acme-1" / "error").write_text("")
    await eventually(lambda: troubles("", ""))


def test_what_fails_costs_its_own_devices(acme: Path) -> None:
    (vendor,) = installed()
    assert [(o.device_id, o.healthy) for o in vendor.offers()] == [("acme-0", True), ("acme-1", True)]
    (acme / "acme-0" / "memory").write_text("much")
    failed = vendor.offers()
    assert [(o.device_id, o.healthy) for o in failed] == [("acme-0", False), ("acme-1", False)]
    assert "'acme' failed in offers" in failed[0].trouble
    (acme / "acme-0" / "used").unlink()
    (acme / "acme-0" / "error").unlink()
    devices = {o.device_id: o.parent for o in failed}
    assert vendor.measure(devices) == {}
    assert vendor.ailing(devices) == {}
    (acme / "acme-0" / "memory").write_text("8")
    assert all(o.healthy and not o.trouble for o in vendor.offers())
