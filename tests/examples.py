"""Number of hypothesis examples per property.

Everywhere, CI included, a property runs a number of examples that finds the mutations of ``tests/mutations``.
``make soak`` multiplies it by ``MOORAGE_EXAMPLES``.
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings

FACTOR = int(os.environ.get("MOORAGE_EXAMPLES", "1"))
# A mutation is found by any failing example; ``tests.mutations`` does not wait for the smallest one.
PHASES = (Phase.explicit, Phase.generate) if os.environ.get("MOORAGE_SHRINK") == "0" else tuple(Phase)


def examples(count: int) -> settings:
    """Settings for ``count`` examples, without a deadline per example."""
    return settings(max_examples=count * FACTOR, deadline=None, phases=PHASES)
