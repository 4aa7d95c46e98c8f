"""References that hold below any path: a web server in front may remove a prefix, such as ``/mgr``,
from the paths that its clients use. Pure."""

from __future__ import annotations


def to_root(raw_path: str) -> str:
    """Relative reference (RFC 3986) from a page to the root of its server, to which a path without
    its first slash can be appended. ``raw_path``: the path of the page as requested, whose
    percent-encoded slashes separate nothing."""
    return "../" * (raw_path.count("/") - 1)
