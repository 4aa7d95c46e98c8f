"""A cluster of processes through the real commands: they meet, and end together."""

from __future__ import annotations

import asyncio
import stat

import pytest

from .parts import Platform, until

# One platform at a time, also with pytest -n and --dist loadgroup.
pytestmark = pytest.mark.xdist_group("platform")
SMALL = ("--resources", "cpu=0.1", "--resources", "mem=32MiB")
# main1 waits until all others have said who they are; the others try until somebody listens.
MEET = """
import os, socket, sys, time
rank, world = int(os.environ["NODE_RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    heard = []
    with socket.create_server(where) as server:
        while len(heard) < world - 1:
            with server.accept()[0] as other:
                heard.append(other.recv(100).decode())
    print("main1 heard", *sorted(heard))
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


async def up(platform: Platform) -> None:
    await until("the first key is there", lambda: asyncio.to_thread((platform.home / "admin-key").exists))

    async def answers() -> bool:
        async with platform.client() as client:
            return (await client.health()).status == "ok"

    await until("the manager answers", answers)


@pytest.mark.timeout(180)
async def test_they_meet_and_end_with_main1(one_node: Platform) -> None:
    platform = one_node
    await up(platform)
    words = ("run", "--name", "meet", "--cluster", "3", *SMALL, "--", "python3", "-c", MEET)
    done = await asyncio.to_thread(platform.run, *words)
    assert (done.returncode, done.stdout) == (0, "main1 heard sub1 sub2\n"), done.stderr
    sub = await asyncio.to_thread(platform.run, "logs", "meet", "--kernel", "sub2")
    assert sub.stdout == "I am sub2 of main1,sub1,sub2\n"
    none = await asyncio.to_thread(platform.run, "logs", "meet", "--kernel", "sub3")
    assert none.returncode != 0
    assert "main1, sub1, sub2" in none.stderr
    story = (await asyncio.to_thread(platform.run, "describe", "meet")).stdout
    assert "3 kernels, single-node" in story
    assert "completed" in story
    assert "SUCCESS" in story


@pytest.mark.timeout(180)
async def test_a_lost_kernel_degrades_it_and_its_key_is_its_users_alone(one_node: Platform) -> None:
    platform = one_node
    await up(platform)
    program = "test $MOORAGE_CLUSTER_HOST != sub1 || { read end <gate; exit 7; }; exec sleep 3600"
    words = ("start", "--name", "work", "--cluster", "2", "--on-kernel-loss", "degrade", *SMALL)
    made = await asyncio.to_thread(platform.run, *words, "--", "/bin/sh", "-c", f"mkfifo gate; {program}")
    assert made.returncode == 0, made.stderr
    keys = list(platform.home.rglob(".ssh/id_ed25519"))
    assert len(keys) == 2
    assert len({key.read_text() for key in keys}) == 1
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    async with platform.client() as client:
        view = await client.get_session("work")
        sub = next(kernel for kernel in view.kernels if kernel.hostname == "sub1")
        [gate] = [path for path in platform.home.rglob("gate") if sub.id in path.parts]
        await asyncio.to_thread(gate.write_text, "now\n")

        async def degraded() -> bool:
            return "sub1" in (await client.get_session("work")).detail

        await until("it goes on without sub1", degraded)
        view = await client.get_session("work")
    assert [(k.hostname, str(k.status), k.exit_code) for k in view.kernels] == [
        ("main1", "RUNNING", None), ("sub1", "ERROR", 7),
    ]  # fmt: skip
    assert (await asyncio.to_thread(platform.run, "stop", "work")).returncode == 0
    story = (await asyncio.to_thread(platform.run, "describe", "work")).stdout
    assert "degraded" in story
    assert "TERMINATED" in story


@pytest.mark.timeout(180)
async def test_each_on_an_agent_of_its_own(one_node: Platform) -> None:
    platform = one_node
    await up(platform)
    words = ("run", "--name", "apart", "--cluster", "2", "--cluster-mode", "multi-node", *SMALL)
    alone = await asyncio.to_thread(platform.run, "plan", *words[3:], "--", "true")
    assert "no" in alone.stdout
    before = dict(platform.env)
    first, last = (int(port) + 40 for port in before["MOORAGE_AGENT__PORT_RANGE"].split("-"))
    platform.env |= {"MOORAGE_AGENT__ID": "node-2", "MOORAGE_AGENT__PORT_RANGE": f"{first}-{last}"}
    platform.start("agent")
    try:
        async with platform.client() as client:

            async def there() -> bool:
                return len(await client.list_agents()) == 2

            await until("the second agent is there", there)
        done = await asyncio.to_thread(platform.run, *words, "--", "python3", "-c", MEET)
        assert (done.returncode, done.stdout) == (0, "main1 heard sub1\n"), done.stderr
        async with platform.client() as client:
            view = await client.get_session("apart")
        assert {kernel.agent_id for kernel in view.kernels} == {"node-1", "node-2"}
    finally:
        platform.env = before
        platform.stop("agent")
