"""``moorage budgets`` and ``moorage prices``."""

from __future__ import annotations

import json

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.budget_units import format_budget_amount, parse_budget_amount
from moorage.common.model.errors import BudgetExhausted, InvalidInput

RESETS = "2026-01-01T00:00Z"


def test_budgets_are_set_shown_and_deleted(manager: FakeManager, moorage: Run) -> None:
    assert "there is no budget" in moorage("budgets").stderr
    made = moorage(
        "budgets", "set", "project", "vision", "gpu", "--hard", "500", "--soft", "400.5h"
    )
    assert made.exit_code == 0
    view = manager.store.budgets.views["project", "vision", "gpu", "month"]
    assert (view.soft, view.hard, view.policy) == (1_441_800_000, 1_800_000_000, "continue")
    assert (
        moorage(
            "budgets", "set", "key", "ci", "money", "--hard", "25.50", "--period", "day", "--stop"
        ).exit_code
        == 0
    )
    assert [line.split() for line in moorage("budgets").stdout.splitlines()] == [
        ["SCOPE", "NAME", "UNIT", "PERIOD", "USED", "SOFT", "HARD", "POLICY", "STATE", "RESETS"],
        ["key", "ci", "money", "day", "0.00", "-", "25.50", "stop", "ok", RESETS],
        [
            "project",
            "vision",
            "gpu",
            "month",
            "0.00",
            "h",
            "400.50",
            "h",
            "500.00",
            "h",
            "continue",
            "ok",
            RESETS,
        ],
    ]
    assert json.loads(moorage("budgets", "-o", "json").stdout)["budgets"][0]["policy"] == "stop"
    assert moorage("budgets", "rm", "key", "ci", "money", "--period", "day").stdout == "key/ci\n"
    assert "no budget of money" in moorage("budgets", "rm", "key", "ci", "money").stderr


def test_prices_are_set_and_shown(manager: FakeManager, moorage: Run) -> None:
    assert "no prices are set" in moorage("prices").stderr
    assert moorage("prices", "set", "gpu", "2.5", "--device", "H100").exit_code == 0
    assert manager.store.budgets.price_views[0].price == 2_500_000
    assert moorage("prices").stdout.splitlines()[1].split() == [
        "gpu",
        "H100",
        "-",
        "2026-01-01T00:00Z",
        "2.5",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("budgets set group x gpu --hard 1", "use one of: project, user, key"),
        ("budgets set user ann disk --hard 1", "use one of: gpu, cpu, memory"),
        ("budgets set user ann gpu --hard 1 --period hour", "use one of: day, week, month, year"),
        ("budgets set user ann gpu", "give --hard, --soft or both"),
        ("budgets set user ann gpu --hard many", "write hours, 0 or more"),
        ("budgets set user ann tokens --hard 1.5", "write a whole number"),
        ("budgets set user ann money --hard -1", "write money"),
        ("budgets set user ann gpu --hard 1 --soft 2", "is above hard"),
        ("prices set tokens 1", "use one of: gpu, cpu"),
    ],
)
def test_refused_arguments(moorage: Run, args: str, message: str) -> None:
    refused = moorage(*args.split())
    assert refused.exit_code != 0
    assert message in refused.stderr


def test_session_over_budget_is_refused(manager: FakeManager, moorage: Run) -> None:
    error = BudgetExhausted(
        "the budget of user 'ann' is exhausted until then", next_step="wait until then"
    )
    manager.store.budgets.exhausted = error
    refused = moorage("start", "--name", "s", "--", "x")
    assert refused.exit_code != 0
    assert "is exhausted until then" in refused.stderr
    assert manager.store.sessions.views == []


def test_reached_limits_are_told(manager: FakeManager, moorage: Run) -> None:
    manager.store.budgets.reached = ["the soft limit of the budget of user ann is reached"]
    started = moorage("start", "--name", "s", "--no-wait", "--", "x")
    assert started.exit_code == 0
    assert "moorage: warning: the soft limit of the budget of user ann is reached" in started.stderr
    moorage("budgets", "set", "user", "ann", "gpu", "--soft", "2", "--hard", "4")
    assert "warning" not in moorage("usage").stderr
    (key, view), *_ = manager.store.budgets.views.items()
    manager.store.budgets.views[key] = view.model_copy(update={"level": "soft", "used": 9_000_000})
    assert (
        "moorage: warning: user ann has used 2.50 h of 2.00 h, its soft limit of gpu by the month; "
        f"it resets at {RESETS}"
    ) in moorage("usage").stderr


@pytest.mark.parametrize(
    ("unit", "text", "amount", "shown"),
    [
        ("gpu", "1.5", 5_400_000, "1.50 h"),
        ("memory", "2", 7_372_800, "2.00 GiB h"),
        ("money", "0.000001", 1, "0.00"),
        ("requests", "7", 7, "7"),
    ],
)
def test_amounts_are_exact(unit: str, text: str, amount: int, shown: str) -> None:
    assert parse_budget_amount(unit, text) == amount
    assert format_budget_amount(unit, amount) == shown
    for wrong in ("", "nan", "inf", "1e99", "-1", "0.0000000001"):
        with pytest.raises(InvalidInput, match="is not an amount of"):
            parse_budget_amount(unit, wrong)


def test_what_charges_nobody_is_warned_about(manager: FakeManager, moorage: Run) -> None:
    doubt = {"scope": "user", "name": "ann", "unit": "money", "period": "month"}
    gap = {"unit": "gpu", "resource_group": "lab", "device": "NVIDIA A100", "begins": None}
    manager.store.budgets.doubted = [
        doubt | {"archived": False, "without_gpus": False, "unpriced": True}
    ]
    manager.store.budgets.gaps = [gap, gap | {"unit": "cpu", "device": "", "begins": 1.8e9}]
    nothing = "nothing that user 'ann' may use has a price now, so nothing counts against this"

    made = moorage("budgets", "set", "user", "ann", "money", "--hard", "5")
    assert f"warning: {nothing}" in made.stderr
    assert f"warning: user/ann money: {nothing}" in moorage("budgets").stderr
    shown = json.loads(moorage("budgets", "-o", "json").stdout)["budgets"]
    assert nothing in shown[0]["warnings"][0]
    assert moorage("budgets", "set", "user", "bob", "money", "--hard", "5").stderr == ""

    gpu = "hours of 'NVIDIA A100' in resource group 'lab' cost nothing: no price applies; set one: "
    cpu = "CPU hours in resource group 'lab' cost nothing until 2027-01-15T08:00Z, when the first"
    made = moorage("prices", "set", "gpu", "2.5", "--device", "H100")
    assert f"warning: {gpu}moorage prices set gpu PRICE --device 'NVIDIA A100'" in made.stderr
    assert "CPU" not in made.stderr, "a price of another unit"
    listed = moorage("prices").stderr
    assert gpu in listed
    assert cpu in listed


def test_amounts_of_money_have_the_currency(manager: FakeManager, moorage: Run) -> None:
    assert moorage("prices", "set", "gpu", "2.5").exit_code == 0
    assert moorage("prices").stdout.splitlines()[0].split()[-1] == "PRICE"
    [price] = manager.store.budgets.price_views
    answer = {"items": [price.model_dump(mode="json")], "warnings": [], "currency": "EUR"}
    manager.can("GET", "/v1/prices", 200, json.dumps(answer))
    assert moorage("prices").stdout.splitlines()[0].split()[-2:] == ["PRICE", "(EUR)"]
    assert moorage("budgets", "set", "user", "ann", "gpu", "--hard", "9").exit_code == 0
    made = moorage("budgets", "set", "user", "ann", "money", "--hard", "5").stdout
    assert "5.00 EUR" in made
    gpu, money = moorage("budgets").stdout.splitlines()[1:]
    assert ("9.00 h" in gpu, "0.00 EUR" in money) == (True, True)
    assert "EUR" not in gpu
