"""The number of hypothesis examples per property.

Everywhere, including CI, a property runs enough examples to find the mutations in
``tests/mutations``, and draws the same ones each time, so a new failure is caused by the change.
``make soak`` multiplies the number by ``MOORAGE_EXAMPLES`` and draws new examples; each finding
becomes a separate test.
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings

FACTOR = int(os.environ.get("MOORAGE_EXAMPLES", "1"))
# A mutation is found by any failing example; ``tests.mutations`` does not wait for the smallest
# one.
PHASES = (
    (Phase.explicit, Phase.generate) if os.environ.get("MOORAGE_SHRINK") == "0" else tuple(Phase)
)


def load_profile() -> None:
    """The settings for all properties, including those that specify none."""
    settings.register_profile("moorage", derandomize=FACTOR == 1, print_blob=True)
    settings.load_profile("moorage")


def examples(count: int) -> settings:
    """Settings for ``count`` examples, without a deadline per example."""
    return settings(max_examples=count * FACTOR, deadline=None, phases=PHASES)
