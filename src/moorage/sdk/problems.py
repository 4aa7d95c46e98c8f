"""Problems in error answers, from a manager or from another server at its address."""

from __future__ import annotations

from pydantic import ValidationError

from moorage.common.views.resources import Problem


def problem_of(url: str, status: int, body: bytes) -> Problem:
    """The problem in an error's body, or a problem that describes what was found instead."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return not_moorage(url, status, body)


def not_moorage(url: str, status: int, body: bytes) -> Problem:
    """The problem for an answer that is not from a manager, because another server listens at the
    address."""
    start = " ".join(body[:120].decode(errors="replace").split())
    return Problem(
        title="Not a Moorage answer",
        status=status,
        code="not-moorage",
        detail=(
            f"the server at {url} (HTTP {status}: {start!r}) is not a Moorage manager of this "
            "version"
        ),
        next_step="check the address: --url or MOORAGE_URL",
    )
