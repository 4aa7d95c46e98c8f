"""The defaults that the console leaves out of specifications, which the REST models determine."""

from __future__ import annotations

import json
import re
from pathlib import Path

from moorage.common.model.spec import EndpointSpec, SessionSpec

VALUES = Path(__file__).resolve().parents[2] / "console" / "src" / "forms" / "values.ts"


def test_the_console_knows_the_defaults() -> None:
    body = re.search(r"const DEFAULTS: Values = {(.*?)};", VALUES.read_text(), re.DOTALL)
    assert body is not None
    known = {
        name: json.loads(value) for name, value in re.findall(r'(\w+): ("?[\w-]+"?),', body[1])
    }
    assert {"engine", "priority", "type"} <= known.keys()
    for name, value in known.items():
        for model in (SessionSpec, EndpointSpec):
            field = model.model_fields.get(name)
            assert field is None or field.default == value, f"{model.__name__}.{name}"
