"""Canary: the share of the requests that a new revision gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.link.messages import Target


def share(targets: Sequence[Target], percent: int, draw: int) -> Sequence[Target]:
    """The replicas for one request: those of the canary for ``percent`` of a hundred values of
    ``draw``, the others for the rest. All replicas, if there are none of the chosen kind."""
    is_tried = draw % 100 < percent
    chosen = [target for target in targets if target.canary == is_tried]
    return chosen if any(not target.draining for target in chosen) else targets
