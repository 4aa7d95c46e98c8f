"""The garbage collector of a daemon: what it built up at its start stays, and is not worth another look."""

from __future__ import annotations

import gc

# Objects made before the young are looked through (the default is 700): a request makes hundreds, and nearly
# all are freed without the collector. Cycles are still found, a little later.
YOUNG = 10_000


def calm() -> None:
    """Call once, when everything is imported and running."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
