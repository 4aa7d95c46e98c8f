"""Version compatibility: an agent or proxy may be one minor version behind its manager. Pure."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def incompatibility(manager: str, peer: str) -> str:
    """Return why a peer of this version cannot work with the manager, or "" if it can.

    Managers are upgraded first, because an older manager may not understand a newer peer. A version
    that is not a pair of numbers is accepted.
    """
    theirs = _NUMBERS.match(manager)
    ours = _NUMBERS.match(peer)
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
