"""Mutations: each still applies to the source, and leaves a valid program."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutations.catalog import MUTATIONS
from tests.mutations.mutation import Mutation

import moorage

SOURCE = Path(moorage.__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_applies(mutation: Mutation) -> None:
    text = (SOURCE / mutation.file).read_text()
    assert text.count(mutation.before) == 1, "stale: rewrite it for the new code"
    if mutation.file.endswith(".py"):
        compile(text.replace(mutation.before, mutation.after), mutation.file, "exec")
    assert all(
        (SOURCE.parents[1] / test.partition("::")[0]).exists() for test in mutation.tests[:1]
    )
