"""Which versions work together: an agent or proxy is of the manager's version, or of the one before. Pure."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def gap(manager: str, peer: str) -> str:
    """What is wrong about a peer of that version; "" for one that works, or whose version says nothing.

    Managers are upgraded first: a newer peer may say what an older manager does not know.
    """
    theirs, ours = _NUMBERS.match(manager), _NUMBERS.match(peer)
    if theirs is None or ours is None:
        return ""
    (major, minor), (own_major, own_minor) = (
        (int(theirs[1]), int(theirs[2])),
        (int(ours[1]), int(ours[2])),
    )
    if (own_major, own_minor) > (major, minor):
        return f"version {peer} is newer than the manager's {manager}: upgrade the managers first"
    if own_major != major or own_minor < minor - 1:
        return f"version {peer} is more than one version behind the manager's {manager}: upgrade it"
    return ""
