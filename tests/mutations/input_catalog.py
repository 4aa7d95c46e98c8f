"""Faults in what people enter and what reaches their programs: commands, values, files. A part of
the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ENGINES = ("tests/unit/agent/test_engines.py",)

MUTATIONS = (
    Mutation(
        "braces in every command are replaced",
        "agent/engines/custom.py",
        "if has_placeholders(spec):",
        "if True:",
        ENGINES,
    ),
    Mutation(
        "an escaped placeholder is replaced",
        "agent/engines/base.py",
        'if found["name"] else found[0][1:-1]',
        'if found["name"] else found[0]',
        ENGINES,
    ),
    Mutation(
        "a batch kernel without clients gets a port for the text {port}",
        "agent/engines/base.py",
        "uses_port = has_placeholders(spec) and any(",
        "uses_port = any(",
        ENGINES,
    ),
)
