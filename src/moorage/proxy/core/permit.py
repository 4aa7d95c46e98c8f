"""Permit: what follows from a request's head, a model and one version of the route table. Pure.

Requests with equal heads share the decision about the head (``BodyRequired``) and its permits.
Every change of the table invalidates all permits, so they may contain any fact from the table.
"""

from __future__ import annotations

from moorage.common.link.messages import ModelRoute
from moorage.proxy.core.limit_subject import LimitSubject


class Permit:
    """A permit for the sender of a head to use this model, whose engine supports the API.

    ``version``: the table's version. ``subjects``: the subjects that limit such a request; None
    until they are first needed."""

    __slots__ = (
        "endpoint",
        "has_fallbacks",
        "max_body_bytes",
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
        self.max_body_bytes = route.max_body_bytes
        self.prefix_affinity = route.prefix_affinity
        self.subjects: tuple[LimitSubject, ...] | None = None

    def limit_by(self, subjects: tuple[LimitSubject, ...]) -> None:
        """Remember the subjects that limit such a request."""
        self.subjects = subjects
