"""Time limits of the proxy that are not settings. Tests shorten them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """All values are in seconds."""

    head_s: float = 15.0
    """Time from accepting a connection, or from the first byte of a later request, to the end of
    the head."""
    idle_s: float = 75.0
    """Longest pause between two requests on a connection. Web servers in front of the proxy keep
    idle connections for a shorter time (60 s), so they close first."""
    body_s: float = 60.0
    """Time from a request's head to the end of its body, plus one second for each
    ``body_bytes_per_s``. For apps: the longest pause within a body, which may take any time."""
    body_bytes_per_s: int = 1024
    linger_s: float = 10.0
    """Time for which the rest of a body is read and dropped after an error response.

    Simple clients send everything before they read. Closing the connection earlier would reset it,
    so that the client would lose the response.
    """
    unread_s: float = 300.0
    """Time after which a client that accepts no data is disconnected. It occupies a replica until
    then."""
    kept_s: float = 4.0
    """Time for which an idle connection to a replica is kept. Engines close theirs after 5 s
    (uvicorn, cpp-httplib), so ours is closed earlier."""
    table_update_s: float = 1.0
    """Maximum time for which a request waits for a newer route table that may admit it. Proxies
    normally receive a change well within this time."""
    shutdown_s: float = 5.0
    """Maximum time for which running requests continue at shutdown."""
    last_save_s: float = 2.0
    """Maximum time for which a shutdown waits for the newest table to be saved. Running requests
    end only after that."""
