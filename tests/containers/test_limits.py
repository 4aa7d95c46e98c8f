"""What a container may have, and that it may have no more."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed, Handle, Launch, Runtime, RuntimeObservation
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from tests.free_ports import free_port

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine

EAT = "x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])"
FORKS = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(3600)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
TELL = """
import json, os
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
try:
    open("/data/new", "w")
    written = "written"
except OSError as error:
    written = error.strerror
told = {"caps": [status["CapEff"], status["CapBnd"]], "nnp": status["NoNewPrivs"]}
told |= {"ids": [os.getuid(), os.getgid()], "pid": os.getpid(), "env": dict(os.environ)}
print(json.dumps(told | {"write": written, "data": open("/data/file").read()}))
"""


async def ended(runtime: Runtime, handle: Handle, within_s: float = 30) -> RuntimeObservation:
    async with asyncio.timeout(within_s):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)
    return seen


async def run(runtime: Runtime, order: Launch) -> tuple[RuntimeObservation, str]:
    handle = await runtime.create(order)
    seen = await ended(runtime, handle)
    return seen, await runtime.log_tail(handle)


async def refused(runtime: Runtime, order: Launch) -> CreateFailed:
    """Why it was; and nothing of it is left, which the engine does only when it is told to."""

    async def begin() -> None:
        await runtime.prepare(order)
        await runtime.create(order)

    with pytest.raises(CreateFailed) as caught:
        await begin()
    assert order.kernel_id not in await runtime.find()
    return caught.value


async def test_too_much_memory_is_told_from_a_kill(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    eaten, _ = await run(runtime, launch(EAT, slots={"mem": 64 << 20}))
    assert (eaten.exit_code, eaten.oom) == (-signal.SIGKILL, True)
    killed, _ = await run(runtime, launch("import os; os.kill(os.getpid(), 9)"))
    assert (killed.exit_code, killed.oom) == (-signal.SIGKILL, False)


async def test_a_fork_bomb_has_an_end(make_runtime: MakeRuntime) -> None:
    seen, said = await run(make_runtime(pids=32), launch(FORKS))
    assert seen.exit_code == 0
    assert 20 < int(said) < 32


async def test_more_cpus_than_the_node_has(make_runtime: MakeRuntime) -> None:
    failed = await refused(make_runtime(), launch(slots={"cpu": 4_000_000}))
    assert failed.reason is Reason.LIMIT_REFUSED
    assert "CPUs" in str(failed)


async def test_a_container_has_no_rights_and_nothing_of_the_agent(
    make_runtime: MakeRuntime, reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_AGENT", "1")
    data = reachable_dir / "data"
    data.mkdir()
    (data / "file").write_text("of the node")
    tell = TELL.replace("/data", str(data))
    runtime = make_runtime(mounts=(str(data),), user="4321:1234")
    seen, said = await run(runtime, launch(tell, env={"MINE": "yes"}))
    assert seen.exit_code == 0, said
    told = json.loads(said)
    assert told["caps"] == ["0000000000000000"] * 2
    assert (told["nnp"], told["ids"]) == ("1", [4321, 1234])
    assert (told["data"], told["write"]) == ("of the node", "Read-only file system")
    assert told["pid"] != 1, "process 1 is deaf to SIGTERM"
    assert told["env"]["IMAGE_SAYS"] == "hello"
    assert told["env"]["MINE"] == "yes"
    assert told["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "A_SECRET_OF_THE_AGENT" not in told["env"]


async def test_a_gpu_is_asked_for_by_its_id(make_runtime: MakeRuntime) -> None:
    program = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"
    runtime = make_runtime()
    seen, said = await run(runtime, launch(program, devices=("GPU-aaa", "GPU-bbb")))
    assert (seen.exit_code, said) == (0, "GPU-aaa,GPU-bbb\n")


async def test_where_docker_cannot_give_gpus(make_runtime: MakeRuntime, plain_engine: PrivateEngine) -> None:
    runtime = make_runtime(plain_engine.socket)
    failed = await refused(runtime, launch(devices=("GPU-aaa",)))
    assert failed.reason is Reason.NO_NVIDIA_RUNTIME
    assert "toolkit" in failed.next_step


async def test_where_docker_knows_no_cdi(make_runtime: MakeRuntime, plain_engine: PrivateEngine) -> None:
    runtime = make_runtime(plain_engine.socket, gpus="cdi")
    failed = await refused(runtime, launch(devices=("GPU-aaa",)))
    assert failed.reason is Reason.NO_NVIDIA_RUNTIME


async def test_a_model_cache_is_shared_and_may_be_read_only(
    make_runtime: MakeRuntime, reachable_dir: Path
) -> None:
    cache = reachable_dir / "cache"
    cache.mkdir()
    write = "import os; open(os.environ['HF_HOME'].rpartition('/')[0] + '/weights', 'x').write('w')"
    seen, said = await run(make_runtime(model_cache=str(cache)), launch(write, model_cache=True))
    assert seen.exit_code == 0, said
    assert (cache / "weights").read_text() == "w"
    read = "print(open('/moorage/cache/weights').read()); open('/moorage/cache/new', 'w')"
    runtime = make_runtime(model_cache=str(cache), cache_writable=False)
    seen, said = await run(runtime, launch(read, model_cache=True))
    assert seen.exit_code == 1
    assert "\nw\n" in f"\n{said}"
    assert "Read-only file system" in said
    seen, said = await run(runtime, launch("import os; print(os.path.exists('/moorage/cache'))"))
    assert said == "False\n", "only for those that load models"


async def test_a_port_that_somebody_else_has(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        failed = await refused(runtime, launch(port=listener.getsockname()[1]))
    assert failed.reason is Reason.PORT_TAKEN
    port = free_port()
    await runtime.create(launch(port=port))
    assert (await refused(runtime, launch(port=port))).reason is Reason.PORT_TAKEN


@pytest.mark.parametrize("pull", ["never", "if-missing", "always"])
async def test_an_image_that_is_nowhere(make_runtime: MakeRuntime, pull: str) -> None:
    image = "127.0.0.1:1/nothing/here:1"  # nothing listens there
    failed = await refused(make_runtime(pull=pull), launch(image=image))
    assert failed.reason is Reason.IMAGE_MISSING
    assert image in str(failed)


async def test_an_image_that_is_not_allowed(make_runtime: MakeRuntime) -> None:
    failed = await refused(make_runtime(images=("registry.example.com/*",)), launch())
    assert failed.reason is Reason.IMAGE_NOT_ALLOWED
    assert "registry.example.com/*" in str(failed)


async def test_a_file_that_containers_may_not_see(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    models, private = tmp_path / "models", tmp_path / "private"
    models.mkdir()
    private.write_text("secret")
    (models / "link").symlink_to(private)
    (models / "model").write_text("weights")
    runtime = make_runtime(mounts=(str(models),))
    for path in (private, models / "link"):
        assert (await refused(runtime, launch(paths=(str(path),)))).reason is Reason.MOUNT_NOT_ALLOWED
    gone = await refused(runtime, launch(paths=(str(models / "gone"),)))
    assert gone.reason is Reason.MODEL_MISSING
    read = f"print(open({str(models / 'model')!r}).read())"
    assert (await run(runtime, launch(read, paths=(str(models / "model"),))))[1] == "weights\n"


async def test_a_log_is_bounded_and_kept_after_the_container(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(log_max_bytes=20_000, log_keep_files=1)
    handle = await runtime.create(launch("for n in range(20000): print('line', n)"))
    await ended(runtime, handle)
    there = b"".join([data async for data in runtime.logs(handle)])
    assert len(there) < 50_000
    assert there.endswith(b"line 19999\n")
    await runtime.destroy(handle)
    assert b"".join([data async for data in runtime.logs(handle)]) == there
    assert await runtime.log_tail(handle, 24) == "line 19998\nline 19999\n"


async def test_a_program_that_is_not_in_the_image(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch("no-such-program", "argument"))
    assert (await ended(runtime, handle)).exit_code == 127
    assert "no-such-program" in await runtime.log_tail(handle)
