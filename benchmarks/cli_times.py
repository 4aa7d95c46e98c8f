"""Benchmark of short commands: processor and wall time, compared with docker and kubectl.

The commands of each round run one after the other, so that other work on the machine is spread over
all of them. ``ps`` queries a platform that this program starts, with two sessions; ``docker ps``
queries a private engine, if this machine can run one. Bytecode is compiled beforehand, as during
installation.

    python benchmarks/cli_times.py [--rounds 11]
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from measuring import machine, machine_line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests

from tests.containers.engine import PrivateEngine, missing_requirement
from tests.e2e.harness import Platform
from tests.trixie import KUBECTL, fetch

ROOT = Path(__file__).resolve().parents[1]
MOORAGE = str(Path(sys.executable).with_name("moorage"))
WARM_UPS = 2


class Case(NamedTuple):
    name: str
    argv: list[str]
    env: Mapping[str, str]


class Sample(NamedTuple):
    user_s: float
    system_s: float
    wall_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


def run(case: Case) -> Sample:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **case.env}
    subprocess.run(case.argv, env=env, check=True, capture_output=True)
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Sample(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, wall_s)


def own_cases(env: Mapping[str, str]) -> list[Case]:
    completing = {
        "_MOORAGE_COMPLETE": "complete_bash",
        "COMP_WORDS": "moorage stop ",
        "COMP_CWORD": "2",
    }
    commands = ("--version", "--help", "run --help", "ps", "ps -o json")
    cases = [Case(f"moorage {words}", [MOORAGE, *words.split()], env) for words in commands]
    return [*cases, Case("moorage stop <Tab>", [MOORAGE], {**env, **completing})]


@contextlib.contextmanager
def docker_cases(folder: Path) -> Iterator[list[Case]]:
    docker = shutil.which("docker")
    if docker is None:
        print("docker is left out: it is not installed (Debian: docker.io)")
        yield []
        return

    version = Case("docker --version", [docker, "--version"], {})
    if reason := missing_requirement():
        print(f"docker ps is left out: {reason}")
        yield [version]
        return

    engine = PrivateEngine(folder, gpus=False, live_restore=False)
    engine.start()
    try:
        yield [version, Case("docker ps", [docker, "--host", f"unix://{engine.socket}", "ps"], {})]
    finally:
        engine.close()


def kubectl_cases() -> list[Case]:
    program = shutil.which("kubectl") or str(KUBECTL)
    if not Path(program).exists() and (reason := fetch({"kubectl": KUBECTL})):
        print(f"kubectl is left out: {reason}")
        return []
    return [Case("kubectl version --client", [program, "version", "--client"], {})]


def print_table(cases: list[Case], samples: list[list[Sample]]) -> None:
    print(
        "\n| command | CPU s: min | **median** | max | user | system | wall s: min | median | max |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case, found in zip(cases, samples, strict=True):
        cpu = [one.cpu_s for one in found]
        wall = [one.wall_s for one in found]
        user, system = (statistics.median(one[column] for one in found) for column in (0, 1))
        print(
            f"| `{case.name}` | {min(cpu):.3f} | **{statistics.median(cpu):.3f}** | {max(cpu):.3f} "
            f"| {user:.3f} | {system:.3f} "
            f"| {min(wall):.3f} | {statistics.median(wall):.3f} | {max(wall):.3f} |"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    rounds = options.parse_args().rounds
    about = machine()
    compileall.compile_dir(str(ROOT / "src"), quiet=2)

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-bench-")))
        home = folder / "home"
        home.mkdir()
        platform = Platform(home)
        platform.start("up", "--inventory", "fake:1xA100")
        stack.callback(platform.close)
        asyncio.run(platform.wait_until_ready())
        for name in ("one", "two"):
            platform.run("start", "--name", name, "--resources", "cpu=0.1", "--", "sleep", "3600")

        cases = own_cases(platform.env)
        cases += stack.enter_context(docker_cases(folder)) + kubectl_cases()
        samples: list[list[Sample]] = [[] for _ in cases]
        for number in range(rounds + WARM_UPS):
            for case, found in zip(cases, samples, strict=True):
                sample = run(case)
                if number >= WARM_UPS:
                    found.append(sample)

    print(machine_line(about), f"load after {os.getloadavg()[0]:.2f}", sep=", ")
    print_table(cases, samples)


if __name__ == "__main__":
    main()
