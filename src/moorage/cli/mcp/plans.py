"""Plans of the MCP server: requests that were shown to the user and can be sent once. Pure.

A write needs the id of its plan. A plan contains the complete request, can be used once, and
expires. It is refused if its resource has changed since. Under a budget, sessions must have a time
limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.errors import BudgetExhausted, InvalidInput, NotFound
from moorage.common.model.spec import SessionSpec

EXPIRES_S = 600.0
MAX_PLANS = 1000
# Writes that start work of unknown duration.
_OPEN_ENDED = frozenset(
    {
        *(
            "create_endpoint",
            "update_endpoint",
            "scale_endpoint",
            "undo_rollout",
            "promote_rollout",
        ),
        *(
            "create_pipeline",
            "retry_pipeline",
            "start_template",
            "update_session",
            "extend_session",
        ),
    }
)


@dataclass(frozen=True)
class OperationPlan:
    """A planned operation. ``arguments``: the operation's arguments. ``etag``: the ETag that the
    resource to be changed had when the plan was made."""

    id: str
    operation: str
    arguments: Mapping[str, Any]
    expires_at: float
    etag: str | None = None
    gpu_hours: float = 0.0


@dataclass
class PlanBook:
    """Unused plans, and the GPU hours of used ones. ``budget``: GPU hours; None means no limit."""

    budget: float | None = None
    used: float = 0.0
    _plans: dict[str, OperationPlan] = field(default_factory=dict)

    def check(self, operation: str, arguments: Mapping[str, Any]) -> float:
        """The most GPU hours that an operation can take. Raises ``BudgetExhausted`` and
        ``InvalidInput``."""
        if self.budget is None:
            return 0.0

        if operation in _OPEN_ENDED:
            raise BudgetExhausted(
                f"{operation} is refused: it has no end that a budget of GPU hours could count",
                next_step="ask the user, or create sessions with a `timeout_s`",
            )

        if operation != "create_session":
            return 0.0

        hours = gpu_hours(arguments.get("body"))
        if self.used + hours > self.budget:
            raise BudgetExhausted(
                f"the session takes up to {hours:g} GPU hours, and {self.budget - self.used:g} of "
                f"{self.budget:g} are left",
                next_step=(
                    "lower `timeout_s`, `retries` or the GPUs, or ask the user for a larger budget"
                ),
            )

        return hours

    def add(self, plan: OperationPlan, now: float) -> None:
        self._plans = {key: saved for key, saved in self._plans.items() if saved.expires_at > now}
        while len(self._plans) >= MAX_PLANS:
            self._plans.pop(next(iter(self._plans)))
        self._plans[plan.id] = plan

    def take(self, plan_id: str, now: float) -> OperationPlan:
        """Return the plan and remove it. Its hours are counted from now on. Raises ``NotFound`` and
        ``BudgetExhausted``."""
        plan = self._plans.get(plan_id)
        if plan is None or plan.expires_at <= now:
            raise NotFound(
                f"there is no plan {plan_id!r}: it was applied, it has expired, or it never "
                "existed",
                next_step="plan again",
            )

        if self.budget is not None:
            self.check(plan.operation, plan.arguments)  # other plans may have been applied since

        del self._plans[plan_id]
        self.used += plan.gpu_hours
        return plan

    def give_back(self, plan: OperationPlan) -> None:
        """Subtract the hours of a plan whose request was refused."""
        self.used -= plan.gpu_hours


def gpu_hours(body: Any) -> float:
    """The most GPU hours of a session with all retries; runs after a preemption are not counted.
    Raises ``InvalidInput``."""
    try:
        spec = SessionSpec.model_validate(body)
    except ValueError as error:
        raise InvalidInput(f"the session is not valid: {error}") from None

    sub = spec.cluster.sub if spec.cluster is not None else None
    subs = sub.resources if sub is not None and sub.resources is not None else spec.resources
    gpus = _gpus(spec.resources) + _gpus(subs) * (spec.size - 1)
    limits = [limit for limit in (spec.timeout_s, spec.max_lifetime_s) if limit is not None]
    if gpus and not limits:
        raise InvalidInput(
            "under a budget, a session with GPUs needs a time limit",
            next_step="set `timeout_s`, or `max_lifetime_s` for an interactive session",
        )

    return gpus * min(limits, default=0) * (1 + spec.retries) / 3600


def _gpus(resources: Mapping[str, Any]) -> float:
    return sum(float(n) for slot, n in resources.items() if slot.endswith((".device", ".shares")))
