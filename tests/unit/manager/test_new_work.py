"""New endpoint work: which changes are considered new work, so that an exhausted budget refuses
them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.spec import EndpointSpec
from moorage.manager.serving.new_work import is_new_work

BASE: dict[str, Any] = {"name": "m", "model": "/m.gguf", "engine": "llamacpp"}


def spec(replicas: int, most: int = 0, **fields: Any) -> EndpointSpec:
    scale = {"autoscale": {"min": 0, "max": most, "waiting": 1}} if most else {}
    return EndpointSpec.model_validate(BASE | {"replicas": replicas} | scale | fields)


@pytest.mark.parametrize(
    ("before", "wanted", "after", "expected"),
    [
        pytest.param(spec(2), 2, spec(2), False, id="nothing"),
        pytest.param(spec(2), 2, spec(1), False, id="fewer"),
        pytest.param(spec(2), 2, spec(0), False, id="none"),
        pytest.param(spec(2), 2, spec(3), True, id="more"),
        pytest.param(spec(0), 0, spec(1), True, id="the first"),
        pytest.param(spec(3), 1, spec(2), True, id="more than wanted now"),
        pytest.param(spec(2), 2, spec(2, priority=50), True, id="others"),
        pytest.param(spec(2), 2, spec(0, priority=50), False, id="others, but none"),
        pytest.param(
            spec(2), 2, spec(2, limits={"requests_per_minute": 1}), False, id="fewer requests"
        ),
        pytest.param(spec(1, 4), 2, spec(2, 3), False, id="a lower maximum"),
        pytest.param(spec(1, 4), 2, spec(2, 5), True, id="a higher maximum"),
        pytest.param(spec(1, 4), 1, spec(3, 4), True, id="more at once"),
        pytest.param(spec(2), 2, spec(2, 4), True, id="autoscaling to more"),
        pytest.param(spec(1, 4), 4, spec(2), False, id="no autoscaling, fewer"),
        pytest.param(spec(0, 4), 0, spec(0, 4, priority=50), True, id="others, once it wakes"),
    ],
)
def test_new_work_is_more_replicas_or_others(
    before: EndpointSpec, wanted: int, after: EndpointSpec, expected: bool
) -> None:
    assert is_new_work(before, wanted, after) is expected
