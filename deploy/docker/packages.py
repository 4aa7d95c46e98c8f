"""Packages of the daemons' image, installed into a build context.

    python3 deploy/docker/packages.py build/image
    docker build -t moorage -f deploy/docker/Dockerfile build/image

Run it from a checkout, with the same Python version as the base image. Two runs for the same commit
write the same files: their times are those of the commit (or SOURCE_DATE_EPOCH), bytecode does not
depend on the times of its sources, and nothing names a path of this machine. So the layer of the
image has the same digest wherever it is built. Bytecode matters: a new container, or one that
cannot write it, would compile everything at its start, which takes longer than the rest of it.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# Below the context; COPY also copies the directories above the packages, with their times.
PLACE = Path("root/opt/moorage")


def main(context: Path) -> None:
    site = context / PLACE
    shutil.rmtree(context / PLACE.parts[0], ignore_errors=True)
    epoch = commit_time()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    pip += ["--no-compile", "--target", str(site)]
    env = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    locked = CHECKOUT / "deploy" / "docker" / "requirements.lock"
    subprocess.run([*pip, "--require-hashes", "-r", str(locked)], env=env, check=True)
    subprocess.run([*pip, str(CHECKOUT)], env=env, check=True)
    finish(context, epoch)


def commit_time() -> int:
    """Seconds since 1970. Exits with an error if there is neither SOURCE_DATE_EPOCH nor a
    commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)

    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{CHECKOUT} is not a checkout with git: set SOURCE_DATE_EPOCH to the seconds of the release"
        )

    return int(done.stdout)


def finish(context: Path, epoch: int) -> None:
    """Make the packages below ``context`` independent of where and when they were installed."""
    site = context / PLACE

    # Programs name the interpreter of this machine; the image starts `python3 -m moorage`.
    shutil.rmtree(site / "bin", ignore_errors=True)
    for record in site.glob("*.dist-info/RECORD"):
        _forget_origin(record)
    for cache in list(site.rglob("__pycache__")):
        shutil.rmtree(cache)

    compileall.compile_dir(
        site, maxlevels=100, quiet=2, stripdir=site, prependdir="/opt/moorage",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip
    for path in _everything(context / PLACE.parts[0]):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (epoch, epoch))


def _forget_origin(record: Path) -> None:
    """Remove the programs, and the file that records the directory from which a package was
    installed."""
    origin = record.with_name("direct_url.json")
    origin.unlink(missing_ok=True)
    gone = (f"{record.parent.name}/{origin.name},", "../../bin/", "bin/")
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(sorted(line for line in lines if not line.startswith(gone))))


def _everything(root: Path) -> Iterator[Path]:
    """``root`` and everything below it, each directory after its contents."""
    for folder, _, files in os.walk(root, topdown=False):
        yield from (Path(folder, name) for name in files)
        yield Path(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(
            "usage: python3 deploy/docker/packages.py CONTEXT    (a directory such as build/image)"
        )
    main(Path(sys.argv[1]))
