"""Names that an SSH client logs in with. Pure.

``project/session``, or ``project+session`` for programs that treat a slash as the end of a host
name, such as scp. Names may themselves contain slashes, so the first form may be ambiguous.
"""

from __future__ import annotations

MAX_LENGTH = 300


def candidates(login: str) -> list[tuple[str, str]]:
    """Projects and sessions that the name may mean, the shortest project first."""
    if len(login) > MAX_LENGTH or "\0" in login:
        return []
    if "+" in login:
        project, _, session = login.partition("+")
        return [(project, session)] if project and session else []
    parts = login.split("/")
    pairs = [("/".join(parts[:n]), "/".join(parts[n:])) for n in range(1, len(parts))]
    return [(project, session) for project, session in pairs if project and session]


def encoded(name: str) -> str:
    """A name, encoded as part of a path."""
    return name.replace("/", "%2F")


def decoded(part: str) -> str:
    return part.replace("%2F", "/")


def named(path: str) -> tuple[str, str]:
    """The project and session of ``PROJECT/SESSION`` with encoded names."""
    project, _, session = path.partition("/")
    return decoded(project), decoded(session)
