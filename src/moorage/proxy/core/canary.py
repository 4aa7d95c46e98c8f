"""Canary: a new revision's share of the requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.link.messages import Target


def share(targets: Sequence[Target], percent: int, draw: int) -> Sequence[Target]:
    """The replicas for one request: the canary's for ``percent`` of a hundred values of ``draw``,
    otherwise the others. If there are none of the chosen kind, all replicas."""
    is_tried = draw % 100 < percent
    chosen = [target for target in targets if target.canary == is_tried]
    return chosen if any(not target.draining for target in chosen) else targets
