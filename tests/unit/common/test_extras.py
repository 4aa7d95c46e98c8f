"""Failed imports of optional dependencies: what is missing, and how to install it."""

from __future__ import annotations

import pytest

from moorage.common.model.extras import explain_import_error

LIBRARY = ": cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("error", "missing", "step"),
    [
        (
            ModuleNotFoundError("No module named 'grpc'", name="grpc"),
            "a package that is not installed: grpc",
            "pip install 'moorage[agent]'",
        ),
        (
            ImportError("libgomp.so.1" + LIBRARY, name="xllamacpp"),
            "a library that this system lacks: libgomp.so.1",
            "apt install libgomp1 (Debian, Ubuntu), or dnf install libgomp",
        ),
        (
            ImportError("libstdc++.so.6" + LIBRARY, name="cygrpc"),
            "a library that this system lacks: libstdc++.so.6",
            "apt install libstdc++6 (Debian, Ubuntu), or dnf install libstdc++",
        ),
        (
            ImportError("libother-2.so.3" + LIBRARY),
            "a library that this system lacks: libother-2.so.3",
            "install the operating system's package that contains libother-2.so.3",
        ),
        (
            ImportError("cannot import name 'x' from 'y'"),
            "a package that is not installed: cannot import name 'x' from 'y'",
            "pip install 'moorage[agent]'",
        ),
    ],
)
def test_a_failed_import_is_explained(error: ImportError, missing: str, step: str) -> None:
    assert explain_import_error(error, "agent") == (missing, step)
