"""Names under which SSH clients log in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.ssh.logins import candidates


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ("vision/dev", [("vision", "dev")]),
        ("vision+dev", [("vision", "dev")]),
        ("vision/team/dev", [("vision", "team/dev"), ("vision/team", "dev")]),
        ("vision/team+dev", [("vision/team", "dev")]),
        ("ann", []),
        ("", []),
        ("/dev", []),
        ("vision/", []),
        ("+", []),
        ("vision/d\0v", []),
        ("a/" * 400, []),
    ],
)
def test_project_and_session_of_a_login(login: str, expected: list[tuple[str, str]]) -> None:
    assert candidates(login) == expected


@given(st.text(max_size=400))
def test_any_login_is_read(login: str) -> None:
    assert all(project and session for project, session in candidates(login))
