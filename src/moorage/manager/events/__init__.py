"""Changes as a stream of server-sent events, from one log of encoded events for all watchers."""

from moorage.manager.events.feed import EventFeed

__all__ = ["EventFeed"]
