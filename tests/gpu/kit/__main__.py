"""Runs every part in its own process, whatever fails, and writes a table and a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

# The parts, most important first in case a machine is lent only briefly, and how many seconds each
# may take.
PARTS = {
    "inventory": 40,
    "nvml": 40,
    "doctor": 40,
    "sessions": 90,
    "release": 110,
    "engine": 170,
    "shares": 110,
    "child": 80,
    "adoption": 90,
    "usage": 60,
    "namespace": 30,
    "sandbox": 60,
    "pytest": 120,
    "cdi": 40,
    "fault": 60,
}
_LEAST_S = 8
_TAIL_BYTES = 2 << 20
_SKIPPED = {"postgres", "pg", "pgdata"}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    out = Path(os.environ["OUT"])
    work = Path(os.environ["KIT_WORK"])
    ends = float(os.environ.get("KIT_STARTED", time.time())) + float(os.environ["KIT_LIMIT_S"])
    environ = dict(os.environ)
    if options.rehearse:
        environ["KIT_REHEARSE"] = "1"

    chosen = [name for name in PARTS if not options.only or name in options.only.split(",")]
    results: dict[str, Any] = {}
    summary = {
        "rehearsal": options.rehearse,
        "python": sys.version,
        "machine": platform.uname()._asdict(),
    }
    for name in chosen:
        limit = min(PARTS[name], ends - time.time() - 10)
        if limit < _LEAST_S:
            results[name] = {"status": "not run", "detail": "no time was left", "seconds": 0}
            continue

        results[name] = run_part(name, limit, work, environ)
        (out / "results.json").write_text(json.dumps(summary | {"parts": results}, indent=1))
        print(line_of(name, results[name]), flush=True)

    summary["seconds"] = round(time.time() - float(os.environ.get("KIT_STARTED", time.time())), 1)
    (out / "results.json").write_text(json.dumps(summary | {"parts": results}, indent=1))
    table = "\n".join(line_of(name, result) for name, result in results.items())
    (out / "table.txt").write_text(table + "\n")
    pack(work / "parts", out / "logs.tar.gz")
    print(f"\n{table}\n\n{summary['seconds']} s in all; results in {out}", flush=True)

    return (
        1 if any(result["status"] in ("failed", "timed out") for result in results.values()) else 0
    )


def run_part(name: str, limit: float, work: Path, environ: dict[str, str]) -> dict[str, Any]:
    folder = work / "parts" / name
    folder.mkdir(parents=True, mode=0o755)
    started = time.monotonic()

    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.kit.part", name, str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ | {"KIT_PART_LIMIT_S": str(limit)},
            start_new_session=True,
        )
        try:
            process.wait(limit)
            over = False
        except subprocess.TimeoutExpired:
            over = True
            process.send_signal(signal.SIGUSR1)  # it writes to its own folder
            time.sleep(0.5)

        left = end_all(process, folder)

    try:
        result: dict[str, Any] = json.loads((folder / "report.json").read_text())
    except (OSError, ValueError):
        result = {"status": "failed", "detail": "it wrote no report"}

    if over:
        result["status"] = "timed out"
    elif result["status"] == "running":
        result |= {"status": "failed", "detail": f"it exited with {process.returncode}"}

    result["seconds"] = round(time.monotonic() - started, 1)
    result["left behind"] = left
    if result["status"] != "passed":
        result["output"] = tail(folder / "output.txt", 60_000)

    return result


def end_all(process: subprocess.Popen[bytes], folder: Path) -> list[str]:
    """Kill the part's process and everything that it started, found through their environment."""
    if process.poll() is None:
        process.kill()
        process.wait()

    left: list[str] = []
    for _ in range(20):
        found = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if names(pid, folder)
        ]
        if not found:
            break

        for pid in found:
            try:
                words = (
                    Path(f"/proc/{pid}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

            left.append(words[:200])

        time.sleep(0.1)

    return left


def names(pid: int, folder: Path) -> bool:
    """Whether a live process has the folder in its environment or arguments, or as its
    directory."""
    needle = str(folder).encode()
    try:
        if (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            or pid == os.getpid()
        ):
            return False

        for file in ("environ", "cmdline"):
            if needle in Path(f"/proc/{pid}/{file}").read_bytes():
                return True

        return os.readlink(f"/proc/{pid}/cwd").startswith(str(folder))
    except OSError:
        return False


def line_of(name: str, result: dict[str, Any]) -> str:
    checks = result.get("checks", [])
    counts = {
        kind: sum(c["result"] == kind for c in checks)
        for kind in ("holds", "FAILS", "not measured")
    }
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    failed = "; ".join(
        f"{c['name']}: {c['detail'][:120]}" for c in checks if c["result"] == "FAILS"
    )
    detail = " | ".join(filter(None, [words, result.get("detail", "")[:200], failed]))

    return f"{name:<10} {result['status']:<10} {result['seconds']:>6} s  {detail}"


def tail(path: Path, size: int) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    return data[-size:].decode(errors="replace")


def pack(folder: Path, archive: Path) -> None:
    """All logs and reports of the parts, without databases; long files are cut to their last
    part."""
    import io

    with tarfile.open(archive, "w:gz", compresslevel=4) as packed:
        for root, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in _SKIPPED]
            for name in files:
                path = Path(root) / name
                try:
                    if not path.is_file() or path.is_symlink():
                        continue

                    size = path.stat().st_size
                    with path.open("rb") as file:
                        file.seek(max(0, size - _TAIL_BYTES))
                        data = file.read()
                except OSError:
                    continue

                member = tarfile.TarInfo(str(path.relative_to(folder)))
                member.size = len(data)
                packed.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    sys.exit(main())
