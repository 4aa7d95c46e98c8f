"""Parts without a platform: the driver's answers, and how the agent's code interprets them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from moorage.agent.devices import DeviceManager, NvidiaVendor
from tests.gpu.kit.machine import HOLDER, LOAD, MIB, Watch, call, nvml, smi, torch_python
from tests.gpu.kit.report import REHEARSAL, NotRun, Report

TREE = Path(__file__).resolve().parents[3]
# Arguments after the handle, for calls that need some.
CHOICES: dict[str, list[tuple[int, ...]]] = {
    "nvmlDeviceGetAPIRestriction": [(0,), (1,)],
    "nvmlDeviceGetClockInfo": [(0,), (1,), (2,)],
    "nvmlDeviceGetMaxClockInfo": [(0,), (1,), (2,)],
    "nvmlDeviceGetTemperatureThreshold": [(0,), (1,), (2,), (3,)],
    "nvmlDeviceGetTotalEccErrors": [(kind, counter) for kind in (0, 1) for counter in (0, 1)],
    "nvmlDeviceGetMemoryErrorCounter": [
        (1, counter, place) for counter in (0, 1) for place in range(8)
    ],
    "nvmlDeviceGetRetiredPages": [(0,), (1,)],
    "nvmlDeviceGetPcieThroughput": [(0,), (1,)],
    "nvmlDeviceGetViolationStatus": [(policy,) for policy in range(6)],
    "nvmlDeviceGetNvLinkVersion": [(0,)],
    "nvmlDeviceGetNvLinkErrorCounter": [(0, counter) for counter in range(4)],
}


def inventory(report: Report, folder: Path) -> None:
    report.fact("uname", " ".join(os.uname()))
    machine = folder / "machine.txt"
    with machine.open("w") as file:
        for command in (
            ("nvidia-smi",),
            ("nvidia-smi", "-q"),
            ("nvidia-smi", "topo", "-m"),
            ("nvidia-smi", "nvlink", "-s"),
            ("sh", "-c", "ls -l /dev/nvidia* /dev/dri /usr/local/nvidia /usr/local/nvidia/*"),
            (
                "sh",
                "-c",
                "ldconfig -p | grep -E 'cuda|nvidia'; echo LD_LIBRARY_PATH=$LD_LIBRARY_PATH",
            ),
            (
                "sh",
                "-c",
                "cat /proc/driver/nvidia/version /proc/driver/nvidia/params; lsmod | head -50",
            ),
            (
                "sh",
                "-c",
                "id; ulimit -a; cat /proc/self/status /proc/self/cgroup; cat /proc/mounts",
            ),
            (
                "sh",
                "-c",
                "ls /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers; nproc; free -m; df -h",
            ),
            (
                "sh",
                "-c",
                "cat /etc/os-release; which docker podman nft iptables unshare bwrap ip ss perf",
            ),
            (
                "sh",
                "-c",
                "ls /sys/bus/pci/devices; cat /sys/bus/pci/devices/*/numa_node; dmesg | tail -80",
            ),
            ("sh", "-c", "env | sort | grep -viE 'key|token|secret|pass'"),
            ("ps", "-ef"),
        ):
            file.write(f"$ {' '.join(command)}\n{call(*command)}\n\n")

    started = time.monotonic()
    manager = DeviceManager((NvidiaVendor(),))
    offers = manager.offers()
    first = time.monotonic() - started
    started = time.monotonic()
    manager.offers()
    report.fact(
        "seconds of the first and the second reading", [round(first, 3), time.monotonic() - started]
    )
    report.fact("offers", [asdict(offer) for offer in offers])
    if REHEARSAL:
        report.check("no GPU is offered where there is none", not offers, offers)
        return

    fields = "uuid,name,memory.total,compute_cap,driver_version,pci.bus_id,mig.mode.current,ecc.mode.current"
    rows = smi(fields)
    report.fact(f"nvidia-smi: {fields}", rows)
    whole = [(row[0], row[1], int(row[2])) for row in rows if row[6] != "Enabled"]
    ours = [(o.device_id, o.model, o.memory_bytes // MIB) for o in offers if not o.parent]
    report.check("UUID, name and memory are those of nvidia-smi", ours == whole, f"{ours} {whole}")
    report.check("all are healthy and whole", all(o.healthy and o.capacity == 1000 for o in offers))
    report.check(
        "a GPU without a peer has no NVLink domain", len(rows) > 1 or not offers[0].nvlink_domain
    )
    parents = {o.device_id: o.parent for o in offers}
    started = time.monotonic()
    report.check(
        "no device has a fault", manager.unhealthy(parents) == {}, manager.unhealthy(parents)
    )
    report.fact("seconds of two health checks", round(time.monotonic() - started, 4))
    measured = manager.measure(parents)
    report.fact("measured while idle", {k: asdict(v) for k, v in measured.items()})
    seen = call(sys.executable, HOLDER, "0", "--seconds", "0")
    report.fact("CUDA sees", seen.strip())
    for offer in offers:
        bare = offer.device_id.removeprefix("GPU-").removeprefix("MIG-")
        report.check("CUDA's UUID is NVML's", bare in seen, seen)


def raw_nvml(report: Report, folder: Path) -> None:
    """The answer on this machine to every NVML call that the agent makes or might make; the tests'
    scripted NVML must match it."""
    if REHEARSAL:
        raise NotRun("a rehearsal has no driver")

    n = nvml()
    handle = n.nvmlDeviceGetHandleByIndex(0)
    file = (folder / "nvml.txt").open(
        "w", buffering=1
    )  # line by line, because a call may crash the process

    def ask(name: str, query: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            value = query()
            text = describe(value)
        except Exception as error:  # noqa: BLE001 - the answer is what is wanted
            value = None
            text = f"{type(error).__name__}: {error}"
        print(name, "=", text, f"  ({(time.perf_counter() - started) * 1000:.2f} ms)", file=file)
        return value

    for name in (
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetNVMLVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetCount",
    ):
        ask(name, getattr(n, name))

    pid = subprocess.Popen(
        [sys.executable, HOLDER, str(1 << 30), "--seconds", "30"], stdout=subprocess.PIPE, text=True
    )
    assert pid.stdout is not None
    for line in pid.stdout:
        if line.startswith("holds"):
            break

    report.fact("pid of a program that holds 1 GiB", pid.pid)
    skipped = ("nvmlDeviceGetHandle", "nvmlDeviceGetGpuInstance", "nvmlDeviceGetComputeInstance")
    for name in sorted(dir(n)):
        if name.startswith("nvmlDeviceGet") and not name.startswith(skipped):
            ask(name, lambda name=name: getattr(n, name)(handle))  # type: ignore[misc]

    ask("MemoryInfo v2", lambda: n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2))
    ask("uncorrected volatile ECC", lambda: n.nvmlDeviceGetTotalEccErrors(handle, 1, 0))
    ask("temperature", lambda: n.nvmlDeviceGetTemperature(handle, 0))
    ask("process utilisation since 0", lambda: n.nvmlDeviceGetProcessUtilization(handle, 0))
    ask_with_choices(n, handle, ask)
    ask(
        "an unknown UUID",
        lambda: n.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000"),
    )
    ask("an index too far", lambda: n.nvmlDeviceGetHandleByIndex(64))
    ask("a MIG slice", lambda: n.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0))
    ask("supported events", lambda: hex(n.nvmlDeviceGetSupportedEventTypes(handle)))
    events = ask("EventSetCreate", n.nvmlEventSetCreate)
    ask(
        "RegisterEvents",
        lambda: n.nvmlDeviceRegisterEvents(handle, n.nvmlEventTypeXidCriticalError, events),
    )
    ask("EventSetWait_v2", lambda: n.nvmlEventSetWait_v2(events, 0))
    pid.kill()
    pid.wait()
    for delay in (0.0, 0.05, 0.2, 1.0):
        time.sleep(delay)
        ask("processes after the kill", lambda: n.nvmlDeviceGetComputeRunningProcesses(handle))

    ask("Shutdown", n.nvmlShutdown)
    ask("a call after Shutdown", lambda: n.nvmlDeviceGetMemoryInfo(handle))
    file.close()


def ask_with_choices(n: Any, handle: Any, ask: Callable[[str, Callable[[], Any]], Any]) -> None:
    for link in range(19):
        ask(f"NvLinkState {link}", lambda link=link: n.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        ask(
            f"NvLinkRemoteDeviceType {link}",
            lambda link=link: n.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link),  # type: ignore[misc]
        )

    for name, choices in CHOICES.items():
        for choice in choices:
            ask(
                f"{name}{choice}",
                lambda name=name, choice=choice: getattr(n, name)(handle, *choice),
            )  # type: ignore[misc]

    for name in dir(n):
        if name.startswith("NVML_FI_DEV_"):
            ask(name, lambda name=name: n.nvmlDeviceGetFieldValues(handle, [getattr(n, name)]))  # type: ignore[misc]


def describe(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(describe, value)) + "]"

    fields = vars(type(value)).get("_fields_")  # from a ctypes structure
    if fields:
        shown = ", ".join(f"{field[0]}={describe(getattr(value, field[0]))}" for field in fields)
        return f"{type(value).__name__}({shown})"
    if hasattr(value, "__dict__") and value.__dict__:
        return str(value.__dict__)

    if (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, str | bytes)
    ):
        return "[" + ", ".join(describe(value[i]) for i in range(min(len(value), 64))) + "]"

    return repr(value)


def doctor(report: Report, folder: Path) -> None:
    home = folder / "home"
    home.mkdir(mode=0o711)
    env = os.environ | {"MOORAGE_HOME": str(home)}
    shown = call(sys.executable, "-m", "moorage", "agent", "doctor", timeout=35, env=env)
    report.fact("moorage agent doctor", shown.splitlines())
    report.check("it names GPUs", "GPU" in shown)
    report.check("it found a GPU", "no NVIDIA" not in shown, gpu=True)


def usage(report: Report, folder: Path) -> None:
    """A program with a known load, measured by the agent's meter and by nvidia-smi in turn."""
    vendor = NvidiaVendor()
    offers = vendor.offers()
    whole = {o.device_id: o.parent for o in offers if not o.parent}
    program = [torch_python(), LOAD, "9", "8192", "4"]
    with Watch(0.1) as watch, (folder / "load.txt").open("wb") as output:
        before = vendor.measure(whole)
        process = subprocess.Popen(program, stdout=output, stderr=output)
        rows: list[dict[str, Any]] = []
        while process.poll() is None:
            ours = vendor.measure(whole)
            row: dict[str, Any] = {
                "at": time.time(),
                "ours": {k: asdict(v) for k, v in ours.items()},
            }
            if not REHEARSAL:
                row["smi"] = smi("utilization.gpu,memory.used,power.draw,temperature.gpu")[0]
                row["processes"] = smi("pid,used_memory", "compute-apps")
                row["clocks"] = clocks()

            rows.append(row)
            time.sleep(0.3)

        time.sleep(1.5)
        after = vendor.measure(whole)

    watch.save(folder / "watch.txt")
    said = (folder / "load.txt").read_text()
    report.fact("the load", said.strip())
    report.check("the load ran", process.returncode == 0, process.returncode)
    (folder / "rows.txt").write_text("\n".join(map(str, rows)))
    if REHEARSAL:
        report.check("nothing is measured without a GPU", not before and not after)
        return

    device = next(iter(whole))
    report.fact("before and after", [asdict(one[device]) for one in (before, after)])
    starts = float(said.partition("loads")[2].split()[2])
    ends = float(said.rsplit("at", 1)[1])
    busy = [row for row in rows if starts + 2 < row["at"] < ends - 0.5]
    util = [row["ours"][device]["utilization"] for row in busy]
    report.check("utilisation is at least 95 %", min(util, default=0) >= 950, util)
    report.fact("MHz of the SMs, and reasons why not more", sorted({row["clocks"] for row in busy}))
    memory = [row["ours"][device]["memory_used"] / MIB - float(row["smi"][1]) for row in busy]
    report.check(
        "memory is nvidia-smi's within 1 GiB", max(map(abs, memory), default=9e9) < 1024, memory
    )
    power = [(row["ours"][device]["power"] / 1000, float(row["smi"][2])) for row in busy]
    near = all(abs(a - b) < 0.15 * max(a, b) for a, b in power)
    report.check("power is nvidia-smi's within 15 %", bool(power) and near, power)
    shares = [row["ours"][device]["memory_by_pid"].get(process.pid) for row in busy]
    report.check(
        "the program's memory is known by its pid", all(shares) and bool(shares), shares[:3]
    )
    by_pid = [row["ours"][device]["utilization_by_pid"] for row in busy]
    report.check(
        "its utilisation is known by its pid",
        any(p and process.pid in p for p in by_pid),
        by_pid[-3:],
    )
    rest = after[device]
    report.check(
        "afterwards it is idle and free",
        (rest.utilization or 0) < 100 and rest.memory_used < 1 << 30,
    )


def clocks() -> tuple[int, str]:
    n = nvml()
    handle = n.nvmlDeviceGetHandleByIndex(0)
    return n.nvmlDeviceGetClockInfo(handle, 1), hex(
        n.nvmlDeviceGetCurrentClocksEventReasons(handle)
    )


def namespace(report: Report, folder: Path) -> None:
    """Which pids the driver names when the program, or the process that asks, is in its own pid
    namespace."""
    if REHEARSAL:
        raise NotRun("a rehearsal has no driver")

    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if "(exit" in call(*inside, "true"):
        raise NotRun("no pid namespace can be made here")

    vendor = NvidiaVendor()
    device = vendor.offers()[0].device_id
    holder = [sys.executable, HOLDER, str(2 << 30), "--seconds", "20"]
    process = subprocess.Popen([*inside, *holder], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.startswith("holds"))
        report.fact("the program in its namespace", said.strip())
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        measured = vendor.measure({device: ""})[device]
        report.fact("its pid here, and the measurement", [children, asdict(measured)])
        known = [
            pid for pid in map(int, children) if (measured.memory_by_pid.get(pid) or 0) >= 2 << 30
        ]
        report.check(
            "its memory is known by its pid of this namespace", bool(known), measured.memory_by_pid
        )
        asks = (
            "import os, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); "
            "print(os.getpid(), [p.__dict__ for p in n.nvmlDeviceGetComputeRunningProcesses(h)])"
        )
        report.fact("who asks in another namespace sees", call(*inside, sys.executable, "-c", asks))
    finally:
        process.kill()
        process.wait()


def tests(report: Report, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "tests/gpu/test_gpu.py",
    ]
    limit = max(20.0, float(os.environ["KIT_PART_LIMIT_S"]) - 8)
    options = [
        "-v",
        "-rA",
        "--timeout=60",
        f"--junitxml={folder}/junit.xml",
        f"--basetemp={folder}/tmp",
    ]
    done = subprocess.run(
        [*command, *options], cwd=TREE, capture_output=True, text=True, timeout=limit, check=False
    )
    print(done.stdout[-60_000:], done.stderr[-5000:])
    report.fact(
        "result",
        done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-500:],
    )
    if REHEARSAL and done.returncode == 0:
        raise NotRun("a rehearsal has no GPU: its tests were skipped")

    for line in done.stdout.splitlines():
        word, _, name = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR") and "::" in name:
            report.check(name.partition("::")[2].split(" - ")[0], word == "PASSED", name)

    report.check("pytest succeeded", done.returncode == 0, done.returncode)


def cdi(report: Report, folder: Path) -> None:
    program = shutil.which("docker")
    if program is None or not Path("/var/run/docker.sock").exists():
        raise NotRun("no engine")

    info = call(program, "info", "--format", "{{json .}}")
    report.fact("docker info", info)
    images = call(program, "images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if not images:
        raise NotRun("the engine has no image, and there is no network to pull one")

    device = NvidiaVendor().offers()[0].device_id
    show = ["sh", "-c", "ls /dev/nvidia*; nvidia-smi -L"]
    option = f"nvidia.com/gpu={device}"
    ran = call(program, "run", "--rm", "--device", option, images[0], *show, timeout=35)
    report.fact("docker run", ran)
    report.check(
        "a container has the device by CDI", "/dev/nvidia" in ran and "(exit" not in ran, ran
    )


PARTS = {
    "inventory": inventory,
    "nvml": raw_nvml,
    "doctor": doctor,
    "usage": usage,
    "namespace": namespace,
    "pytest": tests,
    "cdi": cdi,
}
