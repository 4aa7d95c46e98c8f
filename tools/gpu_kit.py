"""Creates ``build/gpu-kit`` with everything that ``tests/gpu/run.sh`` needs on a machine without a
network.

``make gpu-kit`` runs it. The folder contains the tree of HEAD, the wheels of the platform and its
tests for CPython 3.12 on x86-64 Linux in the versions in requirements.lock, and run.sh. The wheels
are stored uncompressed in one archive, which takes a third less space than in their original form.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "build" / "gpu-kit"
LIMIT_BYTES = 40 << 20
EXTRAS = ("manager", "agent", "proxy", "embedded")
TEST_PACKAGES = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
PIP = "pip==25.3"
GLIBC = (39, 36, 35, 34, 31, 28, 27, 26, 24, 17)
# x86 code compresses a tenth better when its jumps are made absolute.
FILTERS = [
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 128 << 20},
]
README = """What this folder is
===================

Everything that Moorage does with an NVIDIA GPU, for a machine that has one and no network:

    bash run.sh              # ten minutes at most; results in $OUT, or in gpu-kit-results beside this folder
    bash run.sh --only nvml,release
    bash run.sh --rehearse   # without a GPU

What the machine must have
--------------------------

* Linux on x86-64 with glibc 2.28 or newer, 4 GiB of disk below /tmp, 16 GiB of memory
* Python 3.12 with venv and lzma (PYTHON names another one than python3)
* a Python with torch for CUDA and aiohttp (TORCH_PYTHON; often the same), for the parts usage, sessions,
  shares and engine; the others need only the driver
* the NVIDIA driver, with libcuda.so.1 and libnvidia-ml.so.1 on the loader's path, and nvidia-smi
* a user postgres or nobody, if it runs as root
* for the part cdi: a Docker Engine with an image and a CDI specification; for the part sandbox: what
  `moorage agent doctor` asks for

Results
-------

table.txt has a line per part, results.json all facts and checks and the output of each part that did not
pass, logs.tar.gz the logs of every manager, agent, proxy and session, and what the driver said
(inventory/machine.txt, nvml/nvml.txt).
"""


def main() -> None:
    KIT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as name:
        work = Path(name)
        tree = git_tree(work / "tree")
        wheels = work / "wheels"
        wheels.mkdir()
        download(tree, wheels, work)
        check_hashes(wheels, tree / "requirements.lock")
        pip_download(wheels, "--no-deps", PIP)
        pack_wheels(wheels)
        ours = work / "ours"
        run(uv(), "build", "--wheel", "--quiet", "--out-dir", ours, tree)
        pack_tree(tree, ours)

    shutil.copy2(ROOT / "tests" / "gpu" / "run.sh", KIT / "run.sh")
    (KIT / "README").write_text(README)
    size = sum(file.stat().st_size for file in KIT.iterdir())
    print(f"{KIT}: {size / 2**20:.1f} MiB")
    if size > LIMIT_BYTES:
        sys.exit(f"the kit is larger than {LIMIT_BYTES >> 20} MiB")


def uv() -> str:
    """The path of uv."""
    found = subprocess.run([ROOT / "tools" / "uv"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def git_tree(folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    return folder


def download(tree: Path, wheels: Path, work: Path) -> None:
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    extras = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    wanted = work / "wanted.txt"
    wanted.write_text("\n".join([*project["dependencies"], *extras, *TEST_PACKAGES]) + "\n")
    locked = re.findall(
        r"^(\S+==.*?)(?: \\)?$", (tree / "requirements.lock").read_text(), re.MULTILINE
    )
    constraints = work / "constraints.txt"
    constraints.write_text("\n".join(locked) + "\n")
    pip_download(wheels, "--requirement", wanted, "--constraint", constraints)


def pip_download(folder: Path, *arguments: str | Path) -> None:
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in GLIBC] + [
        "manylinux2014_x86_64",
        "manylinux1_x86_64",
    ]
    options = [word for name in platforms for word in ("--platform", name)]
    target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.12", *options]
    # uv downloads nothing for other platforms, and an environment that it made has no pip.
    pip = [uv(), "tool", "run", "--quiet", PIP]
    run(*pip, "download", "--quiet", *target, "--dest", folder, *arguments)


def check_hashes(wheels: Path, lock: Path) -> None:
    known = set(re.findall(r"sha256:([0-9a-f]{64})", lock.read_text()))
    for wheel in wheels.glob("*.whl"):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() not in known:
            sys.exit(f"{wheel.name} is not in requirements.lock")


def pack_wheels(wheels: Path) -> None:
    """Packing takes two minutes, so it is done only when a wheel has changed."""
    found = sorted(wheels.glob("*.whl"))
    listed = "".join(
        f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n" for wheel in found
    )
    archive = KIT / "wheels.tar.xz"
    contents = KIT / "wheels.txt"
    if archive.exists() and contents.exists() and contents.read_text() == listed:
        return

    contents.unlink(missing_ok=True)
    pack(archive, [(wheel.name, stored(wheel)) for wheel in found])
    contents.write_text(listed)


def stored(wheel: Path) -> bytes:
    """The wheel, with its files uncompressed."""
    copy = io.BytesIO()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            new.writestr(info, old.read(info), zipfile.ZIP_STORED)
    return copy.getvalue()


def pack_tree(tree: Path, ours: Path) -> None:
    """The tree, next to the wheel of its source, which has much the same content."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    outside = {"console", "deploy", ".ci"}
    chosen = [path for path in files if path.relative_to(tree).parts[0] not in outside]
    wheels = [(f"wheel/{wheel.name}", stored(wheel)) for wheel in ours.glob("*.whl")]
    pack(KIT / "tree.tar.xz", [(str(p.relative_to(tree)), p.read_bytes()) for p in chosen] + wheels)


def pack(archive: Path, files: list[tuple[str, bytes]]) -> None:
    partial = archive.with_suffix(".partial")
    with (
        lzma.open(partial, "wb", filters=FILTERS) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mode = 0o755 if data[:2] == b"#!" else 0o644
            tar.addfile(member, io.BytesIO(data))

    partial.rename(archive)


if __name__ == "__main__":
    main()
