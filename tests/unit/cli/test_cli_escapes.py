"""Names, messages and logs cannot write to a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import unicodedata
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from hypothesis import example, given
from hypothesis import strategies as st
from invoke import Run
from rich.console import Console
from scripted_session import batch
from tests.examples import examples
from tests.forked_command import run_forked

from moorage.cli.output import PlainLog, print_table, printable, to_json
from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status

TEXT = st.text(
    st.characters() | st.sampled_from("\x1b\x9b\x07\r\n\x85\u202e\u2066\u2028\u061c\ufeff[]0;m")
)
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_safe(text: str) -> bool:
    return not any(
        (unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") and letter not in "\n\t")
        or letter in BIDI
        for letter in text
    )


@examples(200)
@given(TEXT)
def test_no_control_character_is_left(text: str) -> None:
    assert is_safe(printable(text))
    assert "\n" not in printable(text, one_line=True)
    shown = to_json({"name": text})
    assert is_safe(shown)
    assert json.loads(shown) == {"name": text}


@examples(200)
@given(
    st.lists(
        st.binary(max_size=12)
        | st.sampled_from([b"\x1b", b"[", b"31m", b"\r", b"\n", b"\xe2", b"\x80\xae"])
    )
)
@example([b"\x1b", b"[31m"])
@example([b"\r", b"\n"])
def test_a_log_does_not_depend_on_its_pieces(pieces: list[bytes]) -> None:
    whole = PlainLog()
    parts = PlainLog()
    expected = whole.feed(b"".join(pieces), final=True)
    assert (
        "".join([parts.feed(piece) for piece in pieces] + [parts.feed(b"", final=True)]) == expected
    )
    assert is_safe(expected)


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"plain\n\ttext", "plain\n\ttext"),
        ("größer\n".encode(), "größer\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"10 %\r20 %\r\n", "10 %\n20 %\n"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x9b2J \u202eexe.txt".encode(), "\\x9b2J \\u202eexe.txt"),
        (b"\xff\x1b", "\ufffd\\x1b"),
    ],
)
def test_logs_on_a_terminal(log: bytes, shown: str) -> None:
    assert PlainLog().feed(log, final=True) == shown


def test_no_cell_of_a_table_has_control_characters() -> None:
    shown = io.StringIO()
    print_table(Console(file=shown, width=200), ("NAME",), [("\x9b2J\x1b[2J\u202e\rx\ny",)])
    assert is_safe(shown.getvalue())
    assert len(shown.getvalue().splitlines()) == 2


def test_json_of_hostile_names_is_safe_and_complete(manager: FakeManager, moorage: Run) -> None:
    nasty = "\x9b2J\x7f\u202e\x1b[2Jx"
    ended = {"status": Status.ERROR, "script": [], "reason": Reason.OOM, "detail": nasty}
    manager.next_session(**ended)
    manager.add_session(batch("job"))
    shown = moorage("ps", "-a", "-o", "json").stdout
    assert is_safe(shown)
    assert json.loads(shown)["sessions"][0]["detail"] == nasty


def test_a_log_reaches_files_as_it_is_and_terminals_escaped(
    manager: FakeManager, tmp_path: Path
) -> None:
    manager.add_session(batch("job"), log=[b"\x1b[2J", b"log\n"])
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }
    assert run_forked(["logs", "job"], env).stdout == "\x1b[2Jlog\n"

    for options, expected in (((), b"\\x1b[2Jlog"), (("--raw",), b"\x1b[2Jlog")):
        ours, theirs = pty.openpty()
        try:
            run_forked(["logs", "job", *options], env, stdout=theirs).check_returncode()
            assert os.read(ours, 1000).strip() == expected
        finally:
            os.close(ours)
            os.close(theirs)
