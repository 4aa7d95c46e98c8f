"""``docs/compose.md``, followed word for word: ``deploy/compose/cluster.yaml`` on three machines,
each with its own Docker Engine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.guide import addresses, steps
from tests.cluster.machines import Machines

from . import official_postgres
from .daemon_image import IMAGE, ensure
from .engine import missing_requirement
from .etcd_image import ETCD_IMAGE, import_etcd
from .images import PYTHON_IMAGE, import_python
from .machine_engines import MachineEngines
from .postgres_image import programs
from .test_compose import compose
from .test_platform import ENGINE

pytestmark = [
    pytest.mark.deploy,  # too long for `make test-docker`
    pytest.mark.xdist_group("platform"),
    pytest.mark.timeout(900, func_only=True),
]
GUIDE = (Path(__file__).parents[2] / "docs" / "compose.md").read_text()
# The page's names for the images that the engines have.
NAMES = {
    IMAGE: "moorage",
    official_postgres.IMAGE: "postgres:16",
    ETCD_IMAGE: "etcd",
    PYTHON_IMAGE: "python:3.12-slim",
}
# A leader renews its 2 s lease; the rest allows for a machine that is busy with other tests.
ELECTION_S = 3.0
SLACK_S = 5.0
WATCH = """
import json, sys, time, urllib.request
url, key = sys.argv[1:]
while True:
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + key})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            found = json.load(answer)["items"]
            leader = next((one["link"] for one in found if one["leader"]), "")
            print(time.time(), leader, flush=True)
    except OSError:
        pass
    time.sleep(0.05)
"""
ASK = """
import asyncio, sys
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.sdk import Client, chat

async def main():
    key = open("/var/lib/moorage/admin-key").read().strip()
    async with Client("http://127.0.0.1:8700", key) as client:
        await client.endpoints.create(EndpointSpec(
            name="boxed", runtime="docker", image="python:3.12-slim",
            command=["python3", "-c", ENGINE, "{port}"],
            probe=Probe(path="/health"), resources={"cpu": "0.1", "mem": "64MiB"}, stop_grace_s=2,
        ))
        while (await client.endpoints.get("boxed")).status != "ready":
            await asyncio.sleep(0.5)
    for proxy in ("one", "two"):
        messages = [{"role": "user", "content": "who is there?"}]
        print(proxy, *[piece async for piece in chat(f"http://{proxy}:8800/v1", key, "boxed", messages)])

asyncio.run(main())
"""


@pytest.fixture
def engines(home: Path) -> Iterator[tuple[Machines, MachineEngines]]:
    program = compose()
    bin_dir = programs()
    if reason := missing_requirement():
        pytest.skip(reason)
    if bin_dir is None:
        pytest.skip("Debian's package postgresql is not installed")

    with Machines(home, addresses(GUIDE)) as machines:
        engines = MachineEngines(machines, program)
        try:
            engines.start("one")
            with contextlib.closing(engines.api("one")) as api:
                import_python(engines.socket("one"), home)
                ensure(api, home)
                official_postgres.ensure(api, engines.socket("one"), home, bin_dir)
                if not import_etcd(engines.socket("one"), home):
                    pytest.skip("Debian's package etcd-server is not installed")

                for image, name in NAMES.items():
                    repository, _, tag = name.partition(":")
                    api.tag(image, repository, tag or "latest")

            engines.stop("one")
            engines.copy_images("one")
            for name in machines.names:
                engines.start(name)

            yield machines, engines
        finally:
            engines.close()


def test_each_step_names_its_machines() -> None:
    known = set(addresses(GUIDE))
    assert known == {"one", "two", "three"}
    assert all(machines and set(machines) <= known for machines, _ in steps(GUIDE))


def moorage(machines: Machines, name: str, *words: str) -> str:
    command = (
        f"cd /etc/moorage && docker compose exec -T manager python3 -m moorage {' '.join(words)}"
    )
    return machines.run(name, command)


def test_the_cluster_works_as_documented(engines: tuple[Machines, MachineEngines]) -> None:
    machines, docker = engines
    said: list[str] = []
    began = time.monotonic()
    for names, block in steps(GUIDE):
        for name in names:
            said.append(machines.run(name, block, timeout_s=400))
            print(f"{time.monotonic() - began:.0f} s: {name}: {block.splitlines()[-1][:80]}")

    everything = "".join(said)
    for expected in ("the cluster works", "one manager less", "two is the primary"):
        assert expected in everything, everything[-3000:]

    found = json.loads(moorage(machines, "two", "managers", "-o", "json"))["managers"]
    assert {one["link"] for one in found} == {"one:8701", "two:8701", "three:8701"}, found
    assert "stays" in moorage(machines, "two", "ps")
    kept = moorage(machines, "three", "exec", "stays", "--", "python3", "-c", '"print(6 * 7)"')
    assert kept.splitlines()[-1] == "42"
    machines.run("two", f"cat > /etc/moorage/ask.py <<'END'\nENGINE = {ENGINE!r}\n{ASK}\nEND")
    asked = machines.run(
        "two", "cd /etc/moorage && docker compose exec -T manager python3 - < ask.py", timeout_s=300
    )
    assert asked.splitlines() == ["one from a container of boxed", "two from a container of boxed"]
    print(f"{time.monotonic() - began:.0f} s: both proxies answered")
    took = election_s(
        machines, docker, next(one["link"].partition(":")[0] for one in found if one["leader"])
    )
    print(f"{took:.1f} s until another manager led")
    assert took < ELECTION_S + SLACK_S


def election_s(machines: Machines, docker: MachineEngines, leader: str) -> float:
    """Kill the manager of ``leader``. Returns how many seconds pass until another one leads."""
    watcher = next(name for name in machines.names if name != leader)
    key = machines.run(watcher, "cat /etc/moorage/admin-key").strip()
    argv = machines.command(
        watcher, sys.executable, "-I", "-c", WATCH, "http://127.0.0.1:8700/v1/managers", key
    )
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch,
        docker.api(leader) as api,
    ):
        try:
            assert watch.stdout is not None
            seen = (line.split() for line in watch.stdout)
            assert next(words[1] for words in seen if len(words) == 2) == f"{leader}:8701"
            [container] = api.containers(filters={"label": "com.docker.compose.service=manager"})
            killed = time.time()
            api.kill(container["Id"])

            for when, *links in seen:
                if links and links[0] != f"{leader}:8701":
                    return float(when) - killed
                assert float(when) < killed + 60, "no other manager leads"
        finally:
            watch.kill()

    raise AssertionError("the watcher ended")
