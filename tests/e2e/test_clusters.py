"""Cluster sessions through the real commands: rendezvous, completion, kernel loss, and multiple
agents."""

from __future__ import annotations

import asyncio
import stat

import pytest

from tests.addresses import agent_ports, port_range

from .harness import Platform, example, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=32MiB")
# Rank 0 collects the host names of all others. The others retry until it listens.
RENDEZVOUS = """
import os, socket, sys, time
rank, world = int(os.environ["NODE_RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    hosts = []
    with socket.create_server(where) as server:
        while len(hosts) < world - 1:
            with server.accept()[0] as other:
                hosts.append(other.recv(100).decode())
    print("main1 received", *sorted(hosts))
else:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with socket.create_connection(where) as main:
                main.sendall(os.environ["MOORAGE_CLUSTER_HOST"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    print("I am", os.environ["MOORAGE_CLUSTER_HOST"], "of", os.environ["MOORAGE_CLUSTER_HOSTS"], flush=True)
    time.sleep(3600)
"""


@pytest.mark.timeout(180)
async def test_cluster_meets_and_ends_with_its_main_kernel(one_node: Platform) -> None:
    platform = one_node
    arguments = (
        "run",
        "--name",
        "meet",
        "--cluster",
        "3",
        *SMALL,
        "--",
        "python3",
        "-c",
        RENDEZVOUS,
    )
    result = await asyncio.to_thread(platform.run, *arguments)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "main1 | main1 received sub1 sub2" in lines, "each line says whose it is"
    assert set(lines) <= {
        "main1 | main1 received sub1 sub2",
        *(f"sub{n}  | I am sub{n} of main1,sub1,sub2" for n in (1, 2)),
    }
    sub = await asyncio.to_thread(platform.run, "logs", "meet", "--kernel", "sub2")
    assert sub.stdout == "I am sub2 of main1,sub1,sub2\n"
    none = await asyncio.to_thread(platform.run, "logs", "meet", "--kernel", "sub3")
    assert none.returncode != 0
    assert "main1, sub1, sub2" in none.stderr
    description = (await asyncio.to_thread(platform.run, "describe", "meet")).stdout
    assert "3 kernels, single-node" in description
    assert "do not resolve outside a sandbox; MOORAGE_CLUSTER_ADDRESSES" in " ".join(
        description.split()
    )
    assert "completed" in description
    assert "SUCCEEDED" in description


@pytest.mark.timeout(180)
async def test_lost_kernel_degrades_the_cluster_and_its_ssh_key_is_private(
    one_node: Platform,
) -> None:
    platform = one_node
    program = "test $MOORAGE_CLUSTER_HOST != sub1 || { read end <gate; exit 7; }; exec sleep 3600"
    arguments = ("start", "--name", "work", "--cluster", "2", "--on-kernel-loss", "degrade", *SMALL)
    started = await asyncio.to_thread(
        platform.run, *arguments, "--", "/bin/sh", "-c", f"mkfifo gate; {program}"
    )
    assert started.returncode == 0, started.stderr
    keys = list(platform.home.rglob(".ssh/id_ed25519"))
    assert len(keys) == 2
    assert len({key.read_text() for key in keys}) == 1
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}

    async with platform.client() as client:
        view = await client.sessions.get("work")
        sub = next(kernel for kernel in view.kernels if kernel.hostname == "sub1")
        [gate] = [path for path in platform.home.rglob("gate") if sub.id in path.parts]
        await asyncio.to_thread(gate.write_text, "now\n")

        async def is_degraded() -> bool:
            return "sub1" in (await client.sessions.get("work")).detail

        await until("the session continues without sub1", is_degraded)
        view = await client.sessions.get("work")

    assert [(k.hostname, str(k.status), k.exit_code) for k in view.kernels] == [
        ("main1", "RUNNING", None), ("sub1", "ERROR", 7),
    ]  # fmt: skip
    assert (await asyncio.to_thread(platform.run, "stop", "work")).returncode == 0
    description = (await asyncio.to_thread(platform.run, "describe", "work")).stdout
    assert "degraded" in description
    assert "TERMINATED" in description


@pytest.mark.timeout(180)
async def test_examples_with_a_second_agent_that_has_cpu_slots(platform: Platform) -> None:
    platform.start("up")
    await platform.wait_until_ready()
    arguments = ("--cluster", "2", "--cluster-mode", "multi-node", *SMALL)
    planned = await asyncio.to_thread(platform.run, "plan", *arguments, "--", "true")
    assert "no" in planned.stdout
    platform.env |= {
        "MOORAGE_AGENT__ID": "node-2",
        "MOORAGE_AGENT__PORT_RANGE": port_range(agent_ports()),
    }
    platform.start("agent", env={"MOORAGE_AGENT__INVENTORY": "auto+cpu-slots:2"})

    async with platform.client() as client:

        async def has_two_agents() -> bool:
            return len(await client.agents.list()) == 2

        await until("the second agent is connected", has_two_agents)

    shown = (await asyncio.to_thread(example, platform, "clusters.py")).splitlines()
    ran_on = shown[:2]
    log = shown[2:]
    assert {line.split()[-1] for line in ran_on} == {"node-1", "node-2"}
    assert [line.split()[0] for line in ran_on] == ["main1", "sub1"]
    assert log == [
        "main1 received 2500 from sub1",
        "main1 has the sum 4950",
        "SUCCESS names resolve: False",
    ]
    assert (await asyncio.to_thread(example, platform, "cpu_slots.py")).splitlines() == [
        "got cpu-slot-0 of model CPU",
        "got cpu-slot-1 of model CPU",
        "computes on the CPU",
    ]
