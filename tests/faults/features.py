"""A load of pipelines, templates and equal requests with known ends."""

from __future__ import annotations

import random
from typing import Any

from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.templates import TemplateSpec

TEMPLATE = "load"
# Equal requests: the program's duration in seconds and its exit code.
EQUAL = ((2, 0), (3, 3))


def template(record_start: str, options: dict[str, Any]) -> TemplateSpec:
    """Its sessions receive how long to run and the exit code to use."""
    program = f'{record_start} sleep "$1"; exit "$2"'
    return TemplateSpec.model_validate(
        {
            "parameters": {"seconds": {"type": "number"}, "code": {"type": "integer"}},
            "spec": {
                "type": "batch",
                "command": ["/bin/sh", "-c", program, "sh", "{{ seconds }}", "{{ code }}"],
                **options,
            },
        }
    )


def draw_pipeline(
    rng: random.Random, name: str, record_start: str, record_end: str, *, options: dict[str, Any]
) -> PipelineSpec:
    """A load step, an array whose parts may each fail, and steps after its success, failure and
    end."""

    def step(name: str, *after: Any, code: int = 0, **more: Any) -> dict[str, Any]:
        program = f"{record_start} sleep {rng.uniform(0, 3):.2f}; {record_end} exit {code}"
        spec = {"type": "batch", "command": ["/bin/sh", "-c", program], **options}
        return {"name": name, "after": list(after), "spec": spec, **more}

    return PipelineSpec.model_validate(
        {
            "name": name,
            "steps": [
                step("load"),
                step("part", "load", code=rng.choice((0, 0, 1)), array="0-2%2"),
                step("sum", "part"),
                step("alarm", {"step": "part", "on": "failure"}),
                step("report", {"step": "sum", "on": "any"}),
            ],
        }
    )
