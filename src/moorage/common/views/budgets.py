"""REST models for budgets, prices and corrections. Money is in millionths of the currency."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from moorage.common.model.spec import Model, NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.resources import View

Unit = Literal[
    "gpu", "cpu", "memory", "node", "requests", "tokens_in", "tokens_out", "tokens_cached"
]
BudgetUnit = Literal[
    "gpu", "cpu", "memory", "node", "requests", "tokens", "tokens_in", "tokens_out", "money"
]
BudgetScope = Literal["project", "user", "key"]
Period = Literal["day", "week", "month", "year"]
Policy = Literal["continue", "stop"]
Level = Literal["ok", "soft", "hard"]

LARGEST = (1 << 53) - 1
Amount = Annotated[int, Field(ge=0, le=LARGEST)]
_UNITS = (
    "GPU, CPU and node milliseconds, MiB seconds of memory, requests, tokens, or millionths of "
    "money."
)


class BudgetSpec(Model):
    """Amount of one unit that a project, a user or a key may use per day, week, month or year
    (UTC)."""

    EXAMPLE: ClassVar = {"soft": 1_440_000_000, "hard": 1_800_000_000}

    soft: Amount | None = Field(
        default=None,
        description=f"Amount at which the budget is marked and a warning is sent. {_UNITS}",
    )
    hard: Amount | None = Field(
        default=None,
        description=(
            "Amount at which new sessions and requests are refused until the period ends."
        ),
    )
    policy: Policy = Field(
        default="continue",
        description=(
            "Effect of the hard limit on running and pending work. stop: sessions end, and "
            "endpoints have no replicas until the period ends or `hard` is raised."
        ),
    )

    @model_validator(mode="after")
    def _check(self) -> BudgetSpec:
        if self.soft is None and self.hard is None:
            raise ValueError("set `soft`, `hard` or both")
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            raise ValueError(f"soft = {self.soft} is above hard = {self.hard}; set a lower `soft`")
        return self


class BudgetView(View):
    scope: BudgetScope
    name: str
    unit: BudgetUnit
    period: Period
    soft: int | None
    hard: int | None
    policy: Policy
    used: int = Field(description="Used in this period, as of the last aggregation.")
    level: Level = Field(description="hard: exhausted until `resets_at`.")
    resets_at: datetime
    measured_at: datetime | None
    changed_at: datetime
    changed_by: str
    warnings: list[str] = Field([], description="Reasons why nothing can count against it now.")


class PriceSpec(Model):
    """Price per hour (gpu, cpu, node), per GiB-hour (memory), or per million (requests, tokens)."""

    EXAMPLE: ClassVar = {"unit": "gpu", "device": "H100", "price": 2_500_000}

    unit: Unit
    device: NoNul = Field(
        default="",
        description=(
            'GPU model: its name or some of its words, such as H100 for "NVIDIA H100 80GB HBM3"; '
            '"" means any.'
        ),
        max_length=200,
    )
    resource_group: NoNul = Field(default="", description='"": any.', max_length=200)
    since: Timestamp | None = Field(
        default=None,
        description=(
            "First hour to which the price applies: a full hour, not in the past. Default: this "
            "hour."
        ),
    )
    price: Amount = Field(description="In millionths of the currency.")


class PriceView(View):
    unit: Unit
    device: str
    resource_group: str
    since: datetime
    price: int
    changed_at: datetime
    changed_by: str
    warnings: list[str] = Field(
        [],
        description=(
            "Set only in the response to its setting: what the agents offer in this unit that has "
            "no price."
        ),
    )


class CorrectionSpec(Model):
    """Record that corrects the ledger. It does not change other records."""

    EXAMPLE: ClassVar = {
        "unit": "gpu",
        "amount": -3_600_000,
        "at": "2026-05-04T13:00:00Z",
        "reason": "the node was faulty",
        "project": "vision",
    }

    unit: Unit
    amount: Annotated[int, Field(ge=-LARGEST, le=LARGEST)] = Field(
        description=(
            "Amount to add; negative if too much was recorded. In GPU, CPU or node milliseconds, "
            "MiB seconds, or a number."
        )
    )
    at: Timestamp = Field(description="Time of the usage; not in the future.")
    reason: NoNul = Field(min_length=1, max_length=1000)
    project: NoNul = Field(max_length=200)
    user: NoNul = Field(default="", max_length=200)
    key: NoNul = Field(default="", description="Name or id.", max_length=200)
    model: NoNul = Field(default="", max_length=200)
    session_id: NoNul = Field(default="", max_length=200)
    resource_group: NoNul = Field(default="", max_length=200)
    device: NoNul = Field(default="", max_length=200)


class CorrectionView(View):
    id: int = Field(description="The record's number in the ledger.")
