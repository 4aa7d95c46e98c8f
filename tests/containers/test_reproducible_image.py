"""The daemon image, built twice: its layer has the same digest, whenever and wherever it is
built."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from .daemon_image import DOCKERFILE, EPOCH, build, packages
from .engine import PrivateEngine
from .images import PYTHON_IMAGE

# The files that pip leaves: sources with the current time, a program with the interpreter's path,
# the wheel's origin.
RECORD = """thing.py,sha256=0,30
thing-1.dist-info/METADATA,sha256=0,9
{bin}bin/thing,sha256=0,20
thing-1.dist-info/direct_url.json,sha256={origin},40
thing-1.dist-info/RECORD,,
"""


def installed(context: Path, umask: int, program: str) -> None:
    site = context / packages().PLACE
    before = os.umask(umask)
    try:
        for folder in ("thing-1.dist-info", "bin", "deep/er"):
            (site / folder).mkdir(parents=True)

        (site / "thing.py").write_text("NAMES = {'a', 'b', 'c'}\n\n\ndef f():\n    return NAMES\n")
        (site / "deep" / "er" / "one.py").write_text("import thing\n")
        (site / "bin" / "thing").write_text(f"#!{context}/python\n")
        info = site / "thing-1.dist-info"
        (info / "METADATA").write_text("Name: thing\n")
        (info / "direct_url.json").write_text(f'{{"url": "file://{context}"}}\n')
        (info / "RECORD").write_text(RECORD.format(bin=program, origin=context.name))
    finally:
        os.umask(before)


def layers(api: Any, image: str) -> list[str]:
    found: list[str] = api.inspect_image(image)["RootFS"]["Layers"]
    return found


def test_two_builds_have_the_same_layers(docker_engine: PrivateEngine, reachable_dir: Path) -> None:
    built = []
    with contextlib.closing(docker_engine.api()) as api:
        for number, (umask, program) in enumerate([(0o022, ""), (0o077, "../../")]):
            with tempfile.TemporaryDirectory(dir=reachable_dir) as folder:
                installed(Path(folder), umask, program)
                packages().finish(Path(folder), EPOCH)
                name = f"moorage-test/reproducible:{number}"
                build(
                    api,
                    Path(folder),
                    DOCKERFILE.read_text(),
                    name,
                    args={"BASE": PYTHON_IMAGE},
                    nocache=True,
                )
                built.append(layers(api, name))

            end = int(time.time()) + 1
            while time.time() < end:  # file times in a layer are in seconds
                time.sleep(0.05)

        base = layers(api, PYTHON_IMAGE)
        assert built[0] == built[1]
        assert built[0][: len(base)] == base
        assert len(built[0]) == len(base) + 1
        for number in range(2):
            api.remove_image(f"moorage-test/reproducible:{number}", force=True)


def test_packages_say_nothing_of_where_they_were_installed(tmp_path: Path) -> None:
    installed(tmp_path, 0o022, "")
    packages().finish(tmp_path, EPOCH)
    site = tmp_path / packages().PLACE
    files = [path for path in site.rglob("*") if path.is_file()]
    assert not [path for path in files if str(tmp_path).encode() in path.read_bytes()]
    kept = (site / "thing-1.dist-info" / "RECORD").read_text().splitlines()
    assert [line.partition(",")[0] for line in kept] == [
        "thing-1.dist-info/METADATA",
        "thing-1.dist-info/RECORD",
        "thing.py",
    ]
    assert (site / "__pycache__").is_dir()


def test_without_a_commit_the_time_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setattr(packages(), "CHECKOUT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SystemExit, match="set SOURCE_DATE_EPOCH"):
        packages().commit_time()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")
    assert packages().commit_time() == 17
