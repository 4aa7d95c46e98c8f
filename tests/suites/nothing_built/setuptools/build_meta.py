"""Build backend in place of setuptools that builds nothing: pip can download a source distribution
with it, and cannot install one. ``NOTHING_BUILT``: the name and the version that pip expects, from
which a distribution's own metadata may differ by a local version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def prepare_metadata_for_build_wheel(directory: str, settings: Any = None) -> str:
    name, version = os.environ["NOTHING_BUILT"].split()
    folder = Path(directory, f"{name}-{version}.dist-info")
    folder.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
    return folder.name


def build_wheel(*_: Any) -> str:
    raise NotImplementedError("this backend builds nothing")


build_sdist = build_wheel
