"""The whole platform with containers, through the real commands: batch jobs, serving, clusters, and
interactive work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.runtimes import wireguard
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.sdk import chat
from moorage.sdk.pipelines import has_ended
from tests.addresses import agent_ports, port_range
from tests.e2e.harness import Platform, until

from .engine import PrivateEngine
from .images import PYTHON_IMAGE
from .node import containers

# One platform at a time, also with pytest -n --dist loadgroup.
pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(180)]

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=64MiB")
ENGINE = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}", "application/json")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chunk = {"choices": [{"index": 0, "delta": {"content": "from a container of " + request["model"]}}]}
        self.answer(f"data: {json.dumps(chunk)}\\n\\ndata: [DONE]\\n\\n".encode(), "text/event-stream")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def platform(home: Path, docker_engine: PrivateEngine) -> Iterator[Platform]:
    platform = Platform(home)
    platform.env |= {
        "MOORAGE_AGENT__DOCKER": f"unix://{docker_engine.socket}",
        "MOORAGE_AGENT__DOCKER_PULL": "never",
        "MOORAGE_AGENT__DOCKER_IMAGES": '["moorage-test/*"]',
        "MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true",
    }
    platform.start("up")
    yield platform
    platform.close()


async def run(platform: Platform, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(platform.run, *arguments)
    return done.returncode, done.stdout, done.stderr


async def until_up(platform: Platform) -> None:
    await platform.wait_until_ready()

    async def offered() -> bool:
        async with platform.client() as client:
            return "docker" in (await client.agents.get("node-1")).runtimes

    await until("the agent offers containers", offered)


MEET = """
import os, socket, time
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["MOORAGE_CLUSTER_ROLE"] == "main":
    with socket.create_server(("0.0.0.0", where[1])) as server:
        with server.accept()[0] as other:
            print("main1 received", other.recv(100).decode(), "at", where[0], flush=True)
while True:
    try:
        with socket.create_connection(where) as main:
            main.sendall(os.environ["MOORAGE_CLUSTER_HOST"].encode())
        break
    except OSError:
        if os.environ["MOORAGE_CLUSTER_ROLE"] == "main":
            break
        time.sleep(0.05)
time.sleep(3600)
"""


async def test_cluster_connects_and_fails_with_one_of_its_kernels(
    platform: Platform, docker_engine: PrivateEngine
) -> None:
    await until_up(platform)
    arguments = ("--cluster", "2", "--image", PYTHON_IMAGE, *SMALL, "--", "python3", "-c", MEET)
    code, _, err = await run(platform, "start", "--name", "meet", *arguments)
    assert code == 0, err

    async def met() -> bool:
        return "main1 | main1 received sub1 at main1" in (await run(platform, "logs", "meet"))[1]

    await until("the kernels are connected", met)
    async with platform.client() as client:
        sub = next(k for k in (await client.sessions.get("meet")).kernels if k.hostname == "sub1")

    with contextlib.closing(docker_engine.api()) as api:
        api.kill(f"moorage-{sub.id}")

    async def failed() -> bool:
        async with platform.client() as client:
            return (await client.sessions.get("meet")).status == "ERROR"

    await until("the session has failed", failed)
    _, description, _ = await run(platform, "describe", "meet")
    assert "sub1: " in description

    async def none_left() -> bool:
        return await asyncio.to_thread(containers, docker_engine) == {}

    await until("no container is left", none_left)
    with contextlib.closing(docker_engine.api()) as api:

        def remaining() -> list[str]:
            return [n["Name"] for n in api.networks() if n["Name"].startswith("moorage-net-")]

        async def gone() -> bool:
            return await asyncio.to_thread(remaining) == []

        await until("no network is left", gone)


@pytest.mark.skipif(bool(wireguard.missing_requirement()), reason="no WireGuard on this machine")
async def test_cluster_over_two_nodes_has_a_network_of_its_own(platform: Platform) -> None:
    await until_up(platform)
    platform.env |= {
        "MOORAGE_AGENT__ID": "node-2",
        "MOORAGE_AGENT__PORT_RANGE": port_range(agent_ports()),
    }
    platform.start("agent")

    async def two_nodes() -> bool:
        async with platform.client() as client:
            return sum("docker" in agent.runtimes for agent in await client.agents.list()) == 2

    await until("both agents offer containers", two_nodes)
    arguments = ("--cluster", "2", "--cluster-mode", "multi-node", "--image", PYTHON_IMAGE, *SMALL)
    code, _, err = await run(
        platform, "start", "--name", "apart", *arguments, "--", "python3", "-c", MEET
    )
    assert code == 0, err

    async def met() -> bool:
        return "main1 | main1 received sub1 at main1" in (await run(platform, "logs", "apart"))[1]

    await until("the kernels are connected", met)
    async with platform.client() as client:
        assert len({k.agent_id for k in (await client.sessions.get("apart")).kernels}) == 2

    assert (await run(platform, "stop", "apart"))[0] == 0


@pytest.mark.smoke
async def test_batch_session_and_served_engine(
    platform: Platform, docker_engine: PrivateEngine
) -> None:
    await until_up(platform)
    program = "import os, sys; print(os.environ['IMAGE_SAYS'], os.path.exists('/usr')); sys.exit(3)"
    arguments = (
        "run",
        "--name",
        "job",
        "--image",
        PYTHON_IMAGE,
        *SMALL,
        "--",
        "python3",
        "-c",
        program,
    )
    code, out, err = await run(platform, *arguments)
    assert (code, out) == (3, "hello False\n"), err  # /usr exists on the node, but not in the image
    _, description, _ = await run(platform, "describe", "job")
    assert all(
        text in description for text in ("TERMINATED", "FAILED", "exit-nonzero", PYTHON_IMAGE)
    ), description

    refused = ("run", "--name", "other", "--image", "elsewhere/image:1", *SMALL, "--", "true")
    code, _, err = await run(platform, *refused)
    assert code != 0
    assert "does not allow this container image" in err

    spec = EndpointSpec(
        name="boxed",
        runtime="docker",
        image=PYTHON_IMAGE,
        command=["python3", "-c", ENGINE, "{port}"],
        probe=Probe(path="/health"),
        resources={"cpu": "0.1", "mem": "64MiB"},
        stop_grace_s=2,
    )
    async with platform.client() as client:
        await client.endpoints.create(spec)

        async def ready() -> bool:
            return (await client.endpoints.get("boxed")).status == "ready"

        await until("the endpoint is ready", ready)
        messages = [{"role": "user", "content": "who is there?"}]
        pieces = [p async for p in chat(platform.openai_url, platform.key, "boxed", messages)]  # type: ignore[list-item]
        assert "".join(pieces) == "from a container of boxed"
        await client.endpoints.delete("boxed")

    async def none_left() -> bool:
        return await asyncio.to_thread(containers, docker_engine) == {}

    await until("no container is left", none_left)
    _, logs, _ = await run(platform, "logs", "job")
    assert logs == "hello False\n"


def boxed_steps() -> PipelineSpec:
    box = {"runtime": "docker", "image": PYTHON_IMAGE, "resources": {"cpu": 0.1, "mem": "64MiB"}}

    def step(name: str, program: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "spec": box | {"command": ["python3", "-c", program]}} | more

    write = (
        "import os\nos.makedirs('data/deep')\nopen('data/deep/answer', 'w').write('42')\n"
        "os.symlink('deep/answer', 'data/link')\nos.chmod('data/deep', 0o700)"
    )
    read = (
        "print(open('inputs/make/data/link').read())\n"
        "try: open('inputs/make/data/deep/answer', 'w')\n"
        "except OSError as error: print(error.strerror)\n"
        "raise SystemExit(3)"
    )
    steps = (
        step("make", write, outputs=["data"]),
        step("none", "", outputs=["data"]),
        step("take", read, inputs=["make"], outputs=["data"]),
        step("pass", "print(open('here/link').read())", inputs=[{"step": "make", "path": "here"}]),
    )
    return PipelineSpec.model_validate({"name": "boxed", "steps": steps})


async def test_steps_pass_outputs_on_and_a_signal_reloads_a_program(platform: Platform) -> None:
    await until_up(platform)
    async with platform.client() as client:
        await client.pipelines.create(boxed_steps())

        async def ended() -> bool:
            return has_ended(await client.pipelines.get("boxed"))

        await until("the pipeline has ended", ended)
        found = {one.name: one for one in (await client.pipelines.get("boxed")).steps}
        assert {name: one.state for name, one in found.items()} == {
            "make": "succeeded", "none": "failed", "take": "failed", "pass": "succeeded",
        }  # fmt: skip
        assert (found["none"].reason, found["take"].reason) == ("output-failed", "exit-nonzero")
        logs = [
            b"".join([piece async for piece in client.sessions.logs(found[name].session_id)])
            for name in ("take", "pass")
        ]

    assert logs == [b"42\nRead-only file system\n", b"42\n"]

    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, lambda *_: print('reloaded by', os.getpid(), flush=True))\n"
        "print('serving', flush=True)\n"
        "while True: signal.pause()"
    )
    arguments = ("--image", PYTHON_IMAGE, *SMALL, "--", "python3", "-c", program)
    for name, how in (("daemon", "HUP"), ("deaf", "USR1")):
        code, _, err = await run(platform, "start", "--name", name, "--reload", how, *arguments)
        assert code == 0, err

        async def logged(name: str = name, line: str = "serving") -> bool:
            return line in (await run(platform, "logs", name))[1]

        await until("the program serves", logged)

    code, out, err = await run(platform, "reload", "daemon", "deaf")
    assert (code, out) == (1, "daemon\n"), err
    assert "has no handler for SIGUSR1" in err
    await until("the handler has run", lambda: logged("daemon", "reloaded by"))
    assert (await run(platform, "ps"))[1].count("RUNNING") == 2, (
        "the signal without a handler ended nothing"
    )
    assert (await run(platform, "stop", "daemon", "deaf"))[0] == 0


async def test_interactive_work_in_a_container(platform: Platform, tmp_path: Path) -> None:
    await until_up(platform)
    arguments = ("--name", "dev", "--workspace", "keep", "--image", PYTHON_IMAGE, *SMALL)
    code, _, err = await run(platform, "start", *arguments)
    assert code == 0, err
    script = "pwd; echo $MOORAGE_SESSION_NAME; echo oh >&2; exit 7"
    assert await run(platform, "exec", "dev", "--", "sh", "-c", script) == (
        7,
        "/workspace\ndev\n",
        "oh\n",
    )
    assert (await run(platform, "exec", "dev", "--", "nothing"))[0] in (126, 127)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "data").write_bytes(b"\0\xff" * 100_000)
    assert await run(platform, "cp", str(tmp_path / "tree"), "dev:") == (0, "", "")
    assert await run(platform, "cp", "dev:/workspace/tree/data", str(tmp_path / "back")) == (
        0,
        "",
        "",
    )
    assert (tmp_path / "back").read_bytes() == b"\0\xff" * 100_000
    assert (await run(platform, "stop", "dev"))[0] == 0
    _, listed, _ = await run(platform, "workspaces", "list")
    assert "dev" in listed
    assert "195KiB" in listed

    async def removed() -> bool:
        return (await run(platform, "workspaces", "delete", "dev"))[0] == 0

    await until("the workspace is deleted once its kernel is forgotten", removed)
    assert list(platform.home.rglob("tree")) == []


async def test_list_of_tasks_in_containers_of_a_cluster(platform: Platform) -> None:
    """The image has only Python. The kernels take from one list."""
    await until_up(platform)
    file = platform.home / "list.txt"
    file.write_text("".join(f"{n}\n" for n in range(40)))
    program = "import sys, time; time.sleep(0.2); print('ran', sys.argv[1])"
    arguments = ("--tasks", str(file), "--cluster", "2", "--workers", "2", "--image", PYTHON_IMAGE)
    code, _, err = await run(
        platform, "run", "--name", "boxes", *arguments, *SMALL, "--", "python3", "-c", program
    )
    assert code == 0, err
    async with platform.client() as client:
        session = await client.sessions.get("boxes")
        tasks = await client.tasks.list("boxes")
        assert [(task.number, str(task.state)) for task in tasks] == [
            (n, "SUCCEEDED") for n in range(1, 41)
        ]
        assert {task.output for task in tasks} == {f"ran {n}\n" for n in range(40)}
        assert session.detail == ""
    logs = [(await run(platform, "logs", "boxes", "--kernel", k))[1] for k in ("main1", "sub1")]
    assert all("] ran " in log for log in logs), "both kernels have run some"
