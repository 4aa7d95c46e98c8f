"""Runner of steps: starts them as processes, limits them, and collects their cases."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tools.gate.schedule import next_step
from tools.gate.steps import ChosenStep, Extent
from tools.gate.verdict import Failure, Retried

LANES = 8
"""Maximum number of steps at a time. Each has its own ports and networks
(``MOORAGE_TEST_LANE``)."""
STOP_S = 20.0
"""Seconds between SIGINT, on which pytest tears down its fixtures, and SIGKILL."""
MAX_RETRIED = 20
RETRY_LIMIT_S = 300.0
HEARTBEAT_S = 60.0
TAIL_CHARACTERS = 6_000


class State(StrEnum):
    PASSED = "passed"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    """The step was stopped at its limit."""
    NOT_RUN = "not run"
    """Its preparation reported that this machine cannot run it."""


@dataclass
class StepResult:
    """``cpu_s`` is the CPU time of the step and of all processes that it waited for, in seconds.
    ``reason`` explains why the step did not run."""

    chosen: ChosenStep
    state: State
    seconds: float
    cpu_s: float
    log: Path
    cases: int = 0
    skipped: int = 0
    reason: str = ""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class _Ended:
    code: int
    cpu_s: float
    stopped: bool


class Runner:
    """Runs steps side by side.

    ``root`` is the repository; ``output`` gets a log and a list of cases for each step. ``say``
    prints progress. ``python`` is the interpreter of the environment with everything installed.
    """

    def __init__(
        self, root: Path, output: Path, *, python: Path, say: Callable[[str], None], capacity: float
    ) -> None:
        self._root = root
        self._output = output
        self._python = python
        self._say = say
        self._capacity = capacity
        self._free_lanes = list(range(LANES))
        self._processes: set[subprocess.Popen[bytes]] = set()

    async def run_all(self, chosen: Sequence[ChosenStep]) -> list[StepResult]:
        """Run the steps, whatever fails, and return their results in the order of ``chosen``."""
        waiting = list(chosen)
        running: dict[asyncio.Task[StepResult], ChosenStep] = {}
        results: dict[str, StepResult] = {}
        try:
            while waiting or running:
                while len(running) < LANES:
                    step = next_step(waiting, running.values(), self._capacity)
                    if step is None:
                        break

                    waiting.remove(step)
                    running[asyncio.ensure_future(self.run(step))] = step

                done, _ = await asyncio.wait(
                    running, return_when=asyncio.FIRST_COMPLETED, timeout=HEARTBEAT_S
                )
                for task in done:
                    del running[task]
                    result = task.result()
                    results[result.chosen.name] = result

                if not done:
                    names = ", ".join(step.name for step in running.values())
                    self._say(f"running: {names}; waiting: {len(waiting)}")
        finally:
            self.kill()

        return [results[step.name] for step in chosen]

    async def run(self, chosen: ChosenStep) -> StepResult:
        """Prepare and run one step within its limit."""
        lane = self._free_lanes.pop(0)
        log = self._output / f"{chosen.name}.log"
        case_log = self._output / f"{chosen.name}.jsonl"
        start = time.monotonic()
        cpu_s = 0.0
        limit_s = chosen.step.limit_s(chosen.extent)
        self._say(f"start   {chosen.name} ({chosen.reason}; limit {limit_s:.0f} s)")

        try:
            if chosen.step.prepare:
                prepared = await self._execute(
                    chosen.step.prepare, log, lane=lane, limit_s=limit_s, case_log=case_log
                )
                cpu_s += prepared.cpu_s
                if prepared.code != 0:
                    result = StepResult(
                        chosen,
                        State.NOT_RUN,
                        seconds=time.monotonic() - start,
                        cpu_s=cpu_s,
                        log=log,
                    )
                    result.reason = _last_line(log)
                    return self._told(result)

            command = chosen.step.command or self.pytest(chosen)
            began = log.stat().st_size if log.exists() else 0
            ended = await self._execute(command, log, lane=lane, limit_s=limit_s, case_log=case_log)
        finally:
            self._free_lanes.append(lane)
            self._free_lanes.sort()

        result = StepResult(
            chosen,
            State.PASSED,
            seconds=time.monotonic() - start,
            cpu_s=cpu_s + ended.cpu_s,
            log=log,
        )
        _read_cases(result, case_log)
        if ended.stopped:
            result.state = State.STOPPED
            running = ", ".join(_unfinished(case_log)) or "unknown"
            text = f"stopped at its limit of {limit_s:.0f} s; cases that ran then: {running}\n"
            result.failures.append(Failure(chosen.name, "", text + _tail(log, began)))
        elif ended.code != 0:
            result.state = State.FAILED
            if not result.failures:
                result.failures.append(Failure(chosen.name, "", _tail(log, began)))

        return self._told(result)

    async def retry(self, result: StepResult) -> list[Retried]:
        """Run a step's failed cases once more, alone, each in its own process."""
        step = result.chosen.step
        retried = []
        for number, failure in enumerate(result.failures):
            again = step.retry and number < MAX_RETRIED and result.state is not State.STOPPED
            if not again:
                retried.append(Retried(failure, None))
                continue

            if failure.case:
                command = self.pytest(result.chosen, case=failure.case)
                limit_s = RETRY_LIMIT_S
            else:
                command = step.command or self.pytest(result.chosen)
                limit_s = step.limit_s(result.chosen.extent)

            log = self._output / f"{result.chosen.name}-retry-{number + 1}.log"
            self._say(f"again   {failure.name}")
            ended = await self._execute(
                command, log, lane=0, limit_s=limit_s, case_log=Path(os.devnull)
            )
            retried.append(Retried(failure, ended.code == 0, _tail(log, 0)))

        return retried

    def pytest(self, chosen: ChosenStep, case: str = "") -> str:
        """The command line of a step's cases, or of one of them."""
        step = chosen.step
        words = [str(self._python), "-m", "pytest", "-q", "-p", "tools.gate.case_log"]
        words += ["--durations", "15", "--durations-min", "2", "-p", "no:cacheprovider"]
        if case:
            return shlex.join([*words, "-n", "0", case])
        if step.workers and chosen.extent is not Extent.SMOKE:
            words += ["-n", str(step.workers), "--dist", step.distribution]

        expression = step.expression(chosen.extent)
        if expression:
            words += ["-m", expression]

        words += [f"--ignore={path}" for path in step.ignore]
        return shlex.join([*words, *step.tests])

    def kill(self) -> None:
        """Kill everything that is still running."""
        for process in list(self._processes):
            _signal_group(process.pid, signal.SIGKILL)

    async def _execute(
        self, command: str, log: Path, lane: int, limit_s: float, *, case_log: Path
    ) -> _Ended:
        environment = os.environ | {
            "MOORAGE_TEST_LANE": str(lane),
            "GATE_CASE_LOG": str(case_log),
            # Some steps need uv, which `tools/uv` puts there if the machine has none.
            "PATH": f"{self._python.parent}:{os.environ['PATH']}:{self._root}/build/uv/bin",
        }
        # If it is set, each of the hundreds of processes that tests start would compile all its
        # modules.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with log.open("ab") as file:
            file.write(f"$ {command}\n".encode())
            file.flush()
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        self._processes.add(process)
        ending = asyncio.ensure_future(asyncio.to_thread(_wait, process.pid))
        stopped = False
        try:
            await asyncio.wait([ending], timeout=limit_s)
            for number in (signal.SIGINT, signal.SIGKILL):
                if not ending.done():
                    stopped = True
                    _signal_group(process.pid, number)
                    await asyncio.wait([ending], timeout=STOP_S)

            code, cpu_s = await ending
        finally:
            self._processes.discard(process)

        return _Ended(code, cpu_s, stopped)

    def _told(self, result: StepResult) -> StepResult:
        detail = f", {result.cases} cases" if result.cases else ""
        failed = f", {len(result.failures)} failed" if result.failures else ""
        self._say(f"{result.state:8}{result.chosen.name} {result.seconds:.0f} s{detail}{failed}")
        return result


def _wait(pid: int) -> tuple[int, float]:
    """Wait for the process, kill its leftovers in its group, and return its exit status and CPU
    seconds."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    _signal_group(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read_cases(result: StepResult, case_log: Path) -> None:
    if not case_log.exists():
        return

    for line in case_log.read_text().splitlines():
        entry = json.loads(line)
        outcome = entry.get("outcome")
        if outcome is None:
            continue

        result.cases += 1
        if outcome == "skipped":
            result.skipped += 1
        elif outcome == "failed":
            result.failures.append(
                Failure(result.chosen.name, entry["case"], entry.get("output", ""))
            )


def _unfinished(case_log: Path) -> list[str]:
    """Cases that started but did not end."""
    if not case_log.exists():
        return []

    running: dict[str, None] = {}
    for line in case_log.read_text().splitlines():
        entry = json.loads(line)
        if "outcome" in entry:
            running.pop(entry["case"], None)
        else:
            running[entry["case"]] = None

    return list(running)


def _tail(log: Path, began: int) -> str:
    text = log.read_bytes()[began:].decode(errors="replace")
    return text[-TAIL_CHARACTERS:]


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its preparation failed without a word"
