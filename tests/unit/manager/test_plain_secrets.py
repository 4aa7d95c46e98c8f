"""Warnings about secrets in `env`."""

from __future__ import annotations

from moorage.manager.workloads.plain_secrets import warnings


def test_one_warning_names_a_few_variables() -> None:
    envs = [{f"KEY_{n}_TOKEN": "x"} for n in range(7)]
    (told,) = warnings([*envs, {"KEY_0_TOKEN": "again"}])
    assert "KEY_0_TOKEN, KEY_1_TOKEN, KEY_2_TOKEN, KEY_3_TOKEN, KEY_4_TOKEN and 2 more;" in told
    assert len(warnings([{"A_TOKEN" + "_" * 9000: "x"}])[0]) < 600


def test_what_has_no_value_or_is_none_is_not_named() -> None:
    assert warnings([]) == []
    assert (
        warnings([None, "text", ["API_TOKEN"], {"API_TOKEN": None}, {5: "x"}, {"API_TOKEN": 5}])
        == []
    )
    assert warnings([{"API_TOKEN": "", "DB_PASSWORD": "***", "MAX_TOKENS": "5"}]) == []
