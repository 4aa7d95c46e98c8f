"""Installation of an engine's environment: a venv of this Python, pip, and a check that the engine
starts.

The environment is created in a new folder, and ``current`` is pointed to it once it is complete. A
killed run leaves an unmarked folder, which the next run removes; pip's downloads stay in pip's
cache. Each engine has one run at a time: a second run waits and then finds the environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moorage.agent.environments.layout import CURRENT
from moorage.agent.environments.recipes import InstallStep, Recipe
from moorage.common.model.errors import StartupError

_MARK = "complete"
_NO_SPACE = "No space left on device"
# The lines with which pip shows its progress.
_TELLING = ("Collecting ", "Downloading ", "Using cached ", "Installing collected packages")

# The current step, and the number of packages that pip has processed.
Report = Callable[[str, int], None]


class InstallFailed(StartupError):
    """The engine could not be installed."""


def install(folder: Path, recipe: Recipe, report: Report, env: Mapping[str, str]) -> Path:
    """Create the environment for ``recipe`` below ``folder`` unless it exists; return its
    directory.

    ``env``: pip's environment variables. If this raises ``InstallFailed``, nothing is left behind
    and the previous environment stays in use.
    """
    home = folder / recipe.engine
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home, report):
            if (found := _current(home, recipe)) is not None:
                return found

            _sweep(home)
            _check_disk(home, recipe.size)
            made = Path(tempfile.mkdtemp(prefix=f"{recipe.key}-", dir=home))
            try:
                _make(made, recipe, report, env)
                _use(home, made, recipe.key)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise

            return made
    except OSError as error:
        raise InstallFailed(f"cannot write to {home}: {error.strerror}") from None


@contextmanager
def _locked(home: Path, report: Report) -> Iterator[None]:
    with (home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another installation on this node", 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _current(home: Path, recipe: Recipe) -> Path | None:
    target = (home / CURRENT).resolve()
    try:
        same = (target / _MARK).read_text() == recipe.key
    except OSError:
        return None
    # A removed or replaced interpreter leaves dangling links.
    whole = (target / "bin" / recipe.engine).exists() and (target / "bin" / "python").exists()
    return target if same and whole else None


def _sweep(home: Path) -> None:
    """Remove the folders of killed runs. Complete environments stay, because kernels may be using
    them."""
    for path in home.iterdir():
        if path.is_dir() and not path.is_symlink() and not (path / _MARK).exists():
            shutil.rmtree(path, ignore_errors=True)


def _check_disk(home: Path, size: int) -> None:
    free = shutil.disk_usage(home).free
    if size > free:
        raise InstallFailed(
            f"the installation needs {_gib(size)}, and {home} has {_gib(free)} free",
            next_step="free some space, or set XDG_CACHE_HOME of the agent to a larger disk",
        )


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def _make(made: Path, recipe: Recipe, report: Report, env: Mapping[str, str]) -> None:
    report("creating a virtual environment", 0)
    venv = _run([sys.executable, "-m", "venv", str(made)], env)
    if venv is not None:
        raise InstallFailed(
            f"{sys.executable} cannot create a virtual environment: "
            f"{venv[-1] if venv else 'no message'}",
            next_step="apt install python3-venv on this node",
        )

    looked_at = 0

    def follow(line: str) -> None:
        nonlocal looked_at
        looked_at += line.startswith("Collecting ")
        if line.startswith(_TELLING):
            report(line[:100], looked_at)

    for step in recipe.steps:
        _run_step(made, step, env, follow)

    report("checking that it starts", recipe.packages)
    failed = _run([str(made / "bin" / recipe.engine), "--version"], env)
    if failed is not None:
        raise InstallFailed(f"{recipe.engine} was installed but does not start: {_reason(failed)}")


def _run_step(
    made: Path, step: InstallStep, env: Mapping[str, str], follow: Callable[[str], None]
) -> None:
    python = str(made / "bin" / "python")
    failed = _run([python, *step.arguments], env, follow)
    if failed is not None and step.instead and not _is_full(failed):
        failed = _run([python, *step.instead], env, follow)
    if failed is None:
        return
    if _is_full(failed):
        raise InstallFailed(
            f"the disk of {made} is full", next_step="free some space, and run it again"
        )

    raise InstallFailed(
        f"pip failed: {_reason(failed)}",
        next_step=(
            "check the network and pip's index (pip config list) on this node, and run it again"
        ),
    )


def _run(
    command: Sequence[str], env: Mapping[str, str], follow: Callable[[str], None] = lambda _: None
) -> list[str] | None:
    """Run a command. Returns None if it succeeded, or the last lines of its output if it failed."""
    last: deque[str] = deque(maxlen=40)
    process = subprocess.Popen(
        command,
        env={**env, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None

    try:
        with process.stdout as lines:
            for line in map(str.strip, lines):
                if line:
                    last.append(line)
                    follow(line)

        return None if process.wait() == 0 else list(last)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _is_full(lines: Sequence[str]) -> bool:
    return any(_NO_SPACE in line for line in lines)


def _reason(lines: Sequence[str]) -> str:
    """pip's last error, or its last line if it printed no error."""
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or list(lines) or ["no message"])[-1][:300]


def _use(home: Path, made: Path, key: str) -> None:
    (made / _MARK).write_text(key)
    link = home / f"{CURRENT}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(made.name)
    os.replace(link, home / CURRENT)
