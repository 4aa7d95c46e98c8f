"""File descriptors with which a program is started, regardless of their numbers in the agent."""

from __future__ import annotations

import os
import sys

from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.descriptors import spawn_actions

NUMBERS = st.one_of(st.integers(0, 12), st.integers(95, 115), st.integers(0, 2000))


@given(st.lists(NUMBERS, min_size=1, max_size=8, unique=True), st.integers(0, 5))
def test_each_source_gets_its_number(sources: list[int], first: int) -> None:
    open_files = {number: f"file {number}" for number in sources}
    for action, source, target in spawn_actions(sources, first):
        assert action == os.POSIX_SPAWN_DUP2
        open_files[target] = open_files[source]
    assert [open_files[first + at] for at in range(len(sources))] == [f"file {n}" for n in sources]


def test_program_reads_what_it_was_given() -> None:
    """The agent has a hundred open files."""
    sources = (104, 100, 103, 101, 102)
    for number in sources:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.write(writing, str(number).encode())
        os.close(writing)
        os.dup2(reading, number, inheritable=False)
        os.close(reading)

    answer_r, answer_w = os.pipe2(os.O_CLOEXEC)
    program = "import os; os.write(8, b' '.join(os.read(3 + at, 10) for at in range(5)))"
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", program],
            {},
            file_actions=spawn_actions((*sources, answer_w), 3),
        )
        assert os.waitpid(pid, 0)[1] == 0
        assert os.read(answer_r, 100) == b"104 100 103 101 102"
    finally:
        for fd in (*sources, answer_r, answer_w):
            os.close(fd)
