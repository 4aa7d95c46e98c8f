"""Masks of environment variables in answers, by the variables' names."""

from __future__ import annotations

import pytest

from moorage.common.model.secret_names import MASK, is_secret_name, mask_secrets


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD_FILE_PASSWORD", "DB_PASSWORD",
        "token", "GITHUB_TOKEN_RO", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE_KEY", "MY_APIKEY",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEY", "HOME", "KEYBOARD", "SECRETARY", "PUBLIC_KEY"],
)
def test_names_of_other_variables(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_masked_and_empty_ones_shown() -> None:
    assert mask_secrets({"HF_TOKEN": "x", "DB_PASSWORD": "", "SEED": "1"}) == {
        "HF_TOKEN": MASK,
        "DB_PASSWORD": "",
        "SEED": "1",
    }
