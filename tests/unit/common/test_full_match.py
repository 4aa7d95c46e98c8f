"""Validation of whole values: no value is valid with a newline at its end."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from moorage.common.model import slots, spec, spec_fields
from moorage.common.model.errors import MoorageError
from moorage.common.model.group_options import Family, Slot
from moorage.common.model.service_ports import ServicePort, find_problem
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.peers import PeerName
from moorage.proxy.apps.address import parse_address


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (spec.Name, "job"),
        (spec_fields.Word, "gpu"),
        (spec_fields.Image, "alpine:3"),
        (PeerName, "node-1"),
    ],
)
def test_names(kind: object, value: str) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(value) == value
    for wrong in (f"{value}\n", f"\n{value}", f"{value}\n\n"):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_names_of_variables_slots_and_ports() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(spec_fields.Env).validate_python({"A\n": "1"})
    with pytest.raises(MoorageError):
        slots.parse_slots({"cuda.device\n": 1})
    for kind in (Slot, Family):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python("cuda\n")
        assert TypeAdapter(kind).validate_python("cuda") == "cuda"
    assert find_problem([ServicePort("lab\n")])


def test_addresses_of_apps() -> None:
    found = parse_address(f"lab--{'0' * 36}\n.apps.x", "/", "apps.x")
    assert found is not None
    assert found.session_id == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("1969-12-31T23:59:59Z", None),
        ("1970-01-01T02:00:00+02:00", "1970-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59Z", None),
        ("3000-01-01T00:00:00Z", None),
        ("2999-12-31T23:59:59Z", "2999-12-31T23:59:59+00:00"),
    ],
)
def test_time_stamps_are_in_utc_and_in_its_years(value: str, expected: str | None) -> None:
    adapter = TypeAdapter(Timestamp)
    if expected is None:
        with pytest.raises(ValidationError, match="1970 to 2999"):
            adapter.validate_python(value)
    else:
        assert adapter.validate_python(value).isoformat() == expected
