"""Optional dependencies: what is missing after a failed import, and how to install it."""

from __future__ import annotations

import re

_LIBRARY = re.compile(r"(lib[^\s/:]+\.so[\w.]*): cannot open shared object file")
# Libraries that wheels expect from the system, and their packages. A minimal system may lack them.
PACKAGES = {"libgomp.so.1": ("libgomp1", "libgomp"), "libstdc++.so.6": ("libstdc++6", "libstdc++")}


def missing_library(error: ImportError) -> str:
    """The shared system library that an installed package needs for its import; "" if the import
    failed for another reason."""
    found = _LIBRARY.search(str(error))
    return found[1] if found else ""


def explain_import_error(error: ImportError, extra: str) -> tuple[str, str]:
    """Explain what is missing, and how to install it. ``extra``: our extra that includes the
    package."""
    library = missing_library(error)
    if not library:
        return (
            f"a package that is not installed: {error.name or error}",
            f"pip install 'moorage[{extra}]'",
        )

    debian, fedora = PACKAGES.get(library, ("", ""))
    step = f"apt install {debian} (Debian, Ubuntu), or dnf install {fedora}" if debian else ""
    step = step or f"install the operating system's package that contains {library}"
    return f"a library that this system lacks: {library}", step
