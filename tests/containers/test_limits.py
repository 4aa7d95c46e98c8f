"""Container limits, rights, mounts and GPUs, and the reasons for refusals."""

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
from tests.addresses import free_port

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine

EAT = "x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])"
FORKS = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(3600)
        count += 1
except BlockingIOError:
    pass
print(count)
"""
REPORT = """
import json, os
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
try:
    open("/data/new", "w")
    written = "written"
except OSError as error:
    written = error.strerror
result = {"caps": [status["CapEff"], status["CapBnd"]], "nnp": status["NoNewPrivs"]}
result |= {"ids": [os.getuid(), os.getgid()], "pid": os.getpid(), "env": dict(os.environ)}
print(json.dumps(result | {"write": written, "data": open("/data/file").read()}))
"""


async def until_exited(
    runtime: Runtime, handle: Handle, within_s: float = 30
) -> RuntimeObservation:
    async with asyncio.timeout(within_s):
        while (observation := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, observation.state)
    return observation


async def run(runtime: Runtime, order: Launch) -> tuple[RuntimeObservation, str]:
    handle = await runtime.create(order)
    observation = await until_exited(runtime, handle)
    return observation, await runtime.log_tail(handle)


async def refused(runtime: Runtime, order: Launch) -> CreateFailed:
    """The error for a refused kernel. Checks that no container is left, because the engine does not
    clean up by itself."""

    async def start() -> None:
        await runtime.prepare(order)
        await runtime.create(order)

    with pytest.raises(CreateFailed) as caught:
        await start()

    assert order.kernel_id not in await runtime.find()
    return caught.value


async def test_oom_kill_is_distinguished_from_a_kill(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    oom, _ = await run(runtime, launch(EAT, slots={"mem": 64 << 20}))
    assert (oom.exit_code, oom.oom) == (-signal.SIGKILL, True)
    child = (
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {EAT!r}]) != 0)"
    )
    of_a_child, _ = await run(runtime, launch(child, slots={"mem": 64 << 20}))
    assert (of_a_child.exit_code, of_a_child.oom) == (1, True)
    killed, _ = await run(runtime, launch("import os; os.kill(os.getpid(), 9)"))
    assert (killed.exit_code, killed.oom) == (-signal.SIGKILL, False)


async def test_process_limit_stops_a_fork_bomb(make_runtime: MakeRuntime) -> None:
    observation, output = await run(make_runtime(pids=32), launch(FORKS))
    assert observation.exit_code == 0
    assert 20 < int(output) < 32


async def test_more_cpus_than_the_node_has_are_refused(make_runtime: MakeRuntime) -> None:
    error = await refused(make_runtime(), launch(slots={"cpu": 4_000_000}))
    assert error.reason is Reason.LIMIT_REFUSED
    assert "CPUs" in str(error)


async def test_container_has_no_privileges_and_no_environment_of_the_agent(
    make_runtime: MakeRuntime, reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_AGENT", "1")
    data = reachable_dir / "data"
    data.mkdir()
    (data / "file").write_text("of the node")
    program = REPORT.replace("/data", str(data))
    runtime = make_runtime(mounts=(str(data),), user="4321:1234")
    observation, output = await run(runtime, launch(program, env={"MINE": "yes"}))
    assert observation.exit_code == 0, output
    report = json.loads(output)
    assert report["caps"] == ["0000000000000000"] * 2
    assert (report["nnp"], report["ids"]) == ("1", [4321, 1234])
    assert (report["data"], report["write"]) == ("of the node", "Read-only file system")
    assert report["pid"] != 1, "process 1 would ignore SIGTERM"
    assert report["env"]["IMAGE_SAYS"] == "hello"
    assert report["env"]["MINE"] == "yes"
    assert report["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "A_SECRET_OF_THE_AGENT" not in report["env"]


NAMED = """
import getpass, os, pwd
os.makedirs(os.path.expanduser("~/.cache/x"))
print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name, os.environ["HOME"], os.getgid())
print(os.environ.get("USER"), os.environ.get("LOGNAME"))
"""


@pytest.mark.parametrize(
    ("user", "env", "shown"),
    [
        ("4321:1234", {}, "moorage moorage /home/moorage 1234\nmoorage moorage"),
        ("4321", {}, "moorage moorage /home/moorage 0\nmoorage moorage"),
        ("4321", {"HOME": "/tmp", "USER": "ann"}, "ann moorage /tmp 0\nann ann"),
        ("0", {"HOME": "/tmp"}, "root root /tmp 0\nNone None"),
    ],
)
async def test_users_without_a_passwd_entry_have_a_name_and_a_home(
    make_runtime: MakeRuntime, user: str, env: dict[str, str], shown: str
) -> None:
    """``torch`` and vLLM ask for both when they are imported."""
    observation, output = await run(make_runtime(user=user), launch(NAMED, env=env))
    assert (observation.exit_code, output) == (0, f"{shown}\n")


async def test_an_image_overrides_the_defaults_of_the_agent(make_runtime: MakeRuntime) -> None:
    program = "import os; print(os.environ['IMAGE_SAYS'], os.environ['OMP_NUM_THREADS'])"
    defaults = {"IMAGE_SAYS": "goodbye", "OMP_NUM_THREADS": "2"}
    observation, output = await run(make_runtime(), launch(program, default_env=defaults))
    assert (observation.exit_code, output) == (0, "hello 2\n")


async def test_gpus_are_requested_by_id(make_runtime: MakeRuntime) -> None:
    program = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"
    runtime = make_runtime()
    observation, output = await run(runtime, launch(program, devices=("GPU-aaa", "GPU-bbb")))
    assert (observation.exit_code, output) == (0, "GPU-aaa,GPU-bbb\n")


async def test_gpus_without_the_nvidia_runtime_are_refused(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine
) -> None:
    runtime = make_runtime(plain_engine.socket)
    error = await refused(runtime, launch(devices=("GPU-aaa",)))
    assert error.reason is Reason.NO_NVIDIA_RUNTIME
    assert "toolkit" in error.next_step


async def test_gpus_without_cdi_are_refused(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine
) -> None:
    runtime = make_runtime(plain_engine.socket, gpus="cdi")
    error = await refused(runtime, launch(devices=("GPU-aaa",)))
    assert error.reason is Reason.NO_NVIDIA_RUNTIME


async def test_a_model_of_the_cache_is_read_only_and_alone(
    make_runtime: MakeRuntime, reachable_dir: Path
) -> None:
    """The files of a snapshot are links to files beside it, as huggingface-hub makes them."""
    hub = reachable_dir / "huggingface" / "hub"
    mine = hub / "models--org--tiny"
    other = hub / "models--org--other"
    for folder in (mine / "blobs", mine / "snapshots" / "c", other):
        folder.mkdir(parents=True)

    (mine / "blobs" / "b").write_text("w")
    (mine / "snapshots" / "c" / "weights").symlink_to("../../blobs/b")
    read = """
import os, pathlib
model = pathlib.Path("/moorage/models/models--org--tiny")
print((model / "snapshots/c/weights").read_text(), os.listdir("/moorage/models"))
for act in (lambda: (model / "blobs/b").write_text("x"), lambda: (model / "new").touch(),
            lambda: (model / "blobs/b").unlink()):
    try:
        act()
        print("changed")
    except OSError as error:
        print(error.strerror)
"""
    observation, output = await run(make_runtime(), launch(read, model_folder=str(mine)))
    assert observation.exit_code == 0, output
    assert output.splitlines() == ["w ['models--org--tiny']", *["Read-only file system"] * 3]
    assert (mine / "blobs" / "b").read_text() == "w"
    observation, output = await run(
        make_runtime(), launch("import os; print(os.path.exists('/moorage'))")
    )
    assert output == "False\n", "mounted only for kernels that load models"


async def test_port_in_use_is_refused(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        error = await refused(runtime, launch(port=listener.getsockname()[1]))
    assert error.reason is Reason.PORT_TAKEN
    port = free_port()
    await runtime.create(launch(port=port))
    assert (await refused(runtime, launch(port=port))).reason is Reason.PORT_TAKEN


@pytest.mark.parametrize("pull", ["never", "if-missing", "always"])
async def test_missing_image_is_refused(make_runtime: MakeRuntime, pull: str) -> None:
    image = "127.0.0.1:1/nothing/here:1"  # nothing listens there
    error = await refused(make_runtime(pull=pull), launch(image=image))
    assert error.reason is Reason.IMAGE_MISSING
    assert image in str(error)


async def test_disallowed_image_is_refused(make_runtime: MakeRuntime) -> None:
    error = await refused(make_runtime(images=("registry.example.com/*",)), launch())
    assert error.reason is Reason.IMAGE_NOT_ALLOWED
    assert "registry.example.com/*" in str(error)


async def test_path_outside_of_the_mounts_is_refused(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    private = tmp_path / "private"
    models.mkdir()
    private.write_text("secret")
    (models / "link").symlink_to(private)
    (models / "model").write_text("weights")
    runtime = make_runtime(mounts=(str(models),))
    for path in (private, models / "link"):
        assert (
            await refused(runtime, launch(paths=(str(path),)))
        ).reason is Reason.MOUNT_NOT_ALLOWED

    missing = await refused(runtime, launch(paths=(str(models / "gone"),)))
    assert missing.reason is Reason.MODEL_MISSING
    read = f"print(open({str(models / 'model')!r}).read())"
    assert (await run(runtime, launch(read, paths=(str(models / "model"),))))[1] == "weights\n"


async def test_log_is_bounded_and_kept_after_the_container(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(log_max_bytes=20_000, log_keep_files=1)
    handle = await runtime.create(launch("for n in range(20000): print('line', n)"))
    await until_exited(runtime, handle)
    before = b"".join([data async for data in runtime.logs(handle)])
    assert len(before) < 50_000
    assert before.endswith(b"line 19999\n")
    await runtime.destroy(handle)
    assert b"".join([data async for data in runtime.logs(handle)]) == before
    assert await runtime.log_tail(handle, 24) == "line 19998\nline 19999\n"


async def test_missing_program_exits_with_127(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch("no-such-program", "argument"))
    assert (await until_exited(runtime, handle)).exit_code == 127
    assert "no-such-program" in await runtime.log_tail(handle)
