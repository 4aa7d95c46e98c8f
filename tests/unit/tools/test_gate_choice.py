"""Choosing the steps that judge a commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tools.gate.choice import Tier, choose, in_turn, names_in_turn
from tools.gate.steps import Extent, Kind, Step, read_steps

STEPS = read_steps(Path(__file__).parents[3] / "tests" / "steps.toml")
IN_TURN = names_in_turn(STEPS)
PLATFORMS = names_in_turn(STEPS, Kind.TURN)


def step(name: str, kind: Kind, **values: object) -> Step:
    usual_s = {Extent.SMOKE: 10.0, Extent.GATE: 100.0, Extent.FULL: 200.0}
    row: dict[str, object] = {
        "about": name,
        "usual_s": usual_s,
        "weight": 1.0,
        "tests": (f"tests/{name}",),
    }
    return Step.model_validate({"name": name, "kind": kind, **row, **values})


TABLE = (
    step("unit", Kind.CHECK),
    step("core", Kind.TEST),
    step("docker", Kind.INTEGRATION, changed=["src/docker/**"], in_turn=True),
    step("ssh", Kind.INTEGRATION, changed=["src/ssh/*.py"], in_turn=True),
    step("site", Kind.EXTRA, changed=["docs/**"]),
    step("vllm", Kind.FULL),
)


def chosen(tier: Tier, *changed: str, budget: float = 10_000.0) -> dict[str, str]:
    # If two steps took turns, both would be chosen for each number.
    table = [entry.model_copy(update={"in_turn": False}) for entry in TABLE]
    return {
        entry.name: entry.reason for entry in choose(table, tier, changed, 0, budget_core_s=budget)
    }


def test_ten_integrations_take_turns() -> None:
    assert len(IN_TURN) == 10
    # The data planes' own suite, which runs always, covers most of what the clients could find:
    # beyond their smoke case, they run by path and in `make full`.
    integrations = {entry.name for entry in STEPS if entry.kind is Kind.INTEGRATION}
    assert integrations == {*IN_TURN, "clients"}


def test_each_integration_comes_at_the_rate_of_one_in_five() -> None:
    for first in (0, 1044, 99_999):
        numbers = range(first - first % 5, first - first % 5 + 1_000)
        times = Counter(name for number in numbers for name in in_turn(IN_TURN, number))
        assert times == dict.fromkeys(IN_TURN, 200)


@pytest.mark.parametrize("stride", [2, 5, 7, 10, 25, 30])
def test_no_stride_of_submissions_leaves_an_integration_out(stride: int) -> None:
    numbers = range(1044, 1044 + 1_000 * stride, stride)
    times = Counter(name for number in numbers for name in in_turn(IN_TURN, number))
    assert set(times) == set(IN_TURN)
    assert min(times.values()) >= 140
    assert max(times.values()) <= 260


def test_at_most_nine_commits_pass_without_an_integration() -> None:
    last = dict.fromkeys(IN_TURN, 0)
    for number in range(1_000):
        for name in in_turn(IN_TURN, number):
            last[name] = number
        assert number - min(last.values()) <= 9


def test_two_of_the_dearer_half_never_come_together() -> None:
    dearer = set(IN_TURN[5:])
    assert {"docker", "install"} <= dearer
    assert {len(dearer.intersection(in_turn(IN_TURN, number))) for number in range(1_000)} == {1}


def test_each_part_of_the_platforms_comes_once_in_three_commits() -> None:
    assert len(PLATFORMS) == 3
    for first in range(0, 999, 3):
        block = range(first, first + 3)
        assert sorted(name for number in block for name in in_turn(PLATFORMS, number, 1)) == sorted(
            PLATFORMS
        )


@pytest.mark.parametrize("stride", [2, 3, 5, 6, 9, 30])
def test_no_stride_of_submissions_leaves_a_part_of_the_platforms_out(stride: int) -> None:
    numbers = range(1044, 1044 + 900 * stride, stride)
    times = Counter(name for number in numbers for name in in_turn(PLATFORMS, number, 1))
    assert set(times) == set(PLATFORMS)
    assert min(times.values()) >= 220
    assert max(times.values()) <= 380


def test_one_of_the_platforms_parts_runs_in_the_gate_and_in_make_test() -> None:
    table = [step(name, Kind.TURN, changed=[f"src/{name}/**"]) for name in ("a", "b", "c")]
    for tier in (Tier.TEST, Tier.GATE):
        assert len(choose(table, tier, [], 7)) == 1
    assert choose(table, Tier.CHECK, [], 7) == []
    assert len(choose(table, Tier.FULL, [], 7)) == 3
    every = choose(table, Tier.GATE, [f"src/{name}/x.py" for name in ("a", "b", "c")], 7)
    assert sorted(entry.reason for entry in every)[2] == "in turn"
    assert len(every) == 3


def test_steps_in_turn_must_divide_evenly() -> None:
    with pytest.raises(ValueError, match="3 steps in turn cannot be taken 2 at a time"):
        in_turn(["a", "b", "c"], 0)


def test_gate_runs_the_smoke_case_of_each_integration() -> None:
    assert list(chosen(Tier.GATE)) == ["unit", "core", "docker-smoke", "ssh-smoke"]


def test_gate_runs_what_changed() -> None:
    names = chosen(Tier.GATE, "src/docker/deep/client.py", "docs/page.md")
    assert list(names) == ["unit", "core", "docker", "ssh-smoke", "site"]
    assert names["docker"] == "changed: src/docker/deep/client.py"


def test_pattern_of_one_folder_does_not_match_below_it() -> None:
    assert "ssh" not in chosen(Tier.GATE, "src/ssh/deep/client.py")
    assert "ssh" in chosen(Tier.GATE, "src/ssh/client.py")


def test_what_exceeds_the_budget_keeps_its_smoke_case_and_says_so() -> None:
    # unit and core take 200, the two smoke cases 20, and docker 90 more than its smoke case.
    names = chosen(Tier.GATE, "src/docker/a.py", "src/ssh/a.py", "docs/a.md", budget=320)
    assert "docker" in names
    assert names["ssh-smoke"] == "over the budget, though changed: src/ssh/a.py"
    assert "site" not in names


def test_an_integration_in_turn_runs_whatever_the_budget() -> None:
    names = {
        entry.name: entry.reason for entry in choose(TABLE, Tier.GATE, [], 0, budget_core_s=0.0)
    }
    assert names["docker"] == names["ssh"] == "in turn"


def test_check_and_test_are_parts_of_the_gate() -> None:
    assert list(chosen(Tier.CHECK, "src/docker/a.py")) == ["unit"]
    assert list(chosen(Tier.TEST, "src/docker/a.py")) == ["unit", "core"]


def test_full_runs_everything() -> None:
    entries = choose(TABLE, Tier.FULL, [], 0)
    assert [entry.name for entry in entries] == [entry.name for entry in TABLE]
    assert {entry.extent for entry in entries} == {Extent.FULL}


def test_expression_selects_the_extent() -> None:
    docker = step("docker", Kind.INTEGRATION, marks="docker and not vllm")
    assert docker.expression(Extent.SMOKE) == "(docker and not vllm) and smoke"
    assert docker.expression(Extent.GATE) == "(docker and not vllm) and not slow"
    assert docker.expression(Extent.FULL) == "docker and not vllm"
    assert step("core", Kind.TEST).expression(Extent.FULL) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[a]\nkind = "check"\nabout = "x"\nweight = 1\nusual_s = { gate = 1 }',
            "either `command` or `tests`",
        ),
        (
            '[a]\nkind = "integration"\nabout = "x"\nweight = 1\ntests = ["t"]\nusual_s = { gate = 1 }',
            "smoke",
        ),
        (
            '[a]\nkind = "check"\nabout = "x"\nweight = 1\ntests = ["t"]\nusual_s = { gate = 1 }\nwork = 2',
            "work",
        ),
        (
            '[a]\nkind = "sometimes"\nabout = "x"\nweight = 1\ntests = ["t"]\nusual_s = { gate = 1 }',
            "kind",
        ),
    ],
)
def test_mistakes_in_the_table_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "steps.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"steps\.toml, \[a\]") as raised:
        read_steps(path)
    assert words in str(raised.value)
