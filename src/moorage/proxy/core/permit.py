"""Permit: what follows from the head of a request, a model and one version of the route table
together. Pure.

Requests with equal heads share what was decided about the head (``BodyRequired``), and so the
permits in it. Every change of the table ends them all, so whatever the table says may be kept here.
"""

from __future__ import annotations

from moorage.common.link.messages import ModelRoute
from moorage.proxy.core.limit_subject import LimitSubject


class Permit:
    """The sender of a head may ask for this model, whose engine has the API.

    ``version``: of the table. ``subjects``: what limits such a request; None until somebody has
    asked."""

    __slots__ = (
        "endpoint",
        "has_fallbacks",
        "name",
        "prefix_affinity",
        "route",
        "subjects",
        "version",
    )

    def __init__(self, route: ModelRoute, version: object = None) -> None:
        self.route = route
        self.version = version
        self.name = route.name
        self.endpoint = route.endpoint
        self.has_fallbacks = bool(route.fallbacks)
        self.prefix_affinity = route.prefix_affinity
        self.subjects: tuple[LimitSubject, ...] | None = None

    def limit_by(self, subjects: tuple[LimitSubject, ...]) -> None:
        """Keep what limits such a request."""
        self.subjects = subjects
