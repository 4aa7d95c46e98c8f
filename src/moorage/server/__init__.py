"""Composition root: commands, bootstrap, all-in-one mode, registration and diagnostics."""

import sys


def _import_structlog() -> None:
    """Import structlog without rich. structlog imports rich for tracebacks, which we do not print
    because they hold secrets.

    This saves a tenth of a daemon's start and 8 MB of its memory.
    """
    hidden = {name: None for name in ("rich", "greenlet") if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]
    import structlog

    assert structlog.dev
    for name in hidden:
        del sys.modules[name]


_import_structlog()
