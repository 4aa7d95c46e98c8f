"""Resource slots: exact vectors of integers in base units.

Units: ``cpu`` in milli-cpu; ``mem`` in bytes; ``<family>.device`` in whole devices;
``<family>.shares`` in 1/1000 of a device. An omitted slot counts as zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation, Overflow

from moorage.common.model.errors import InvalidInput

Slots = Mapping[str, int]

# One whole device, in the units of device capacity and ``.shares``.
WHOLE_DEVICE = 1000

# Id prefix of a pseudo-device: a slot on a node without GPUs, for GPU jobs on its CPUs.
CPU_SLOT = "cpu-slot-"

# Slot of a batch runtime: the number of jobs that its site accepts concurrently.
JOBS = "jobs"

# Largest amount. The sum of two amounts still fits in a 64-bit integer in the database.
MAX_AMOUNT = 2**62

_NAME = re.compile(r"(cpu|mem|jobs|[a-z][a-z0-9]*(-[a-z0-9]+)*\.(device|shares))")
_SIZE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(([kmgt]i?)?b?)\s*", re.IGNORECASE)
# A smaller size without a unit is refused: whoever writes 16 means another unit than bytes.
_LEAST_WITHOUT_UNIT = 1024**2
_FACTORS = {"": 1} | {
    f"{letter}{binary}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for binary, base in (("", 1000), ("i", 1024))
}


def parse_size(text: str | float) -> int:
    """Parse a size such as ``"512MiB"``, ``"2g"``, ``"1.5 GB"``, ``"100B"`` or a number of bytes
    into bytes. Without a unit, 0 and whole numbers from 1 MiB are allowed.

    Raises ``InvalidInput`` for anything else, including negative numbers.
    """
    match = _SIZE.fullmatch(str(text))
    size = Decimal(match[1]) * _FACTORS[(match[3] or "").lower()] if match else None
    if match is None or size is None or size > MAX_AMOUNT:
        raise InvalidInput(
            f"{text!r} is not a size", next_step="write it like 512MiB, 16GiB or a number of bytes"
        )

    if not match[2] and (0 < size < _LEAST_WITHOUT_UNIT or size != int(size)):
        number = match[1]
        raise InvalidInput(
            f"{text!r} has no unit, and would be {number} bytes",
            next_step=f"write {number}GiB or {number}MiB ({number}B for bytes)",
        )

    return int(size)


def parse_amount(slot: str, value: str | int | float) -> int:
    """Parse the amount of one slot into base units. Raises ``InvalidInput`` with the slot and the
    value."""
    if not _NAME.fullmatch(slot):
        raise InvalidInput(
            f"unknown slot {slot!r}",
            next_step="slots are cpu, mem, and family.device or family.shares, like cuda.device",
        )

    if slot == "mem":
        return parse_size(value)

    scale = 1 if slot == JOBS or slot.endswith(".device") else 1000
    try:
        number = Decimal(str(value))
        amount = number * scale
    except (InvalidOperation, Overflow):
        number = amount = Decimal(-1)

    if not number.is_finite() or not 0 <= amount <= MAX_AMOUNT or amount != int(amount):
        allowed = "a whole number" if scale == 1 else "a number with at most three decimals"
        raise InvalidInput(
            f"{slot} = {value!r} is not allowed", next_step=f"{slot} takes {allowed}, 0 or more"
        )

    return int(amount)


def parse_slots(given: Mapping[str, str | int | float]) -> dict[str, int]:
    """Parse a resource request such as ``{"cpu": 2, "mem": "4GiB"}`` into base units; zeros are
    dropped."""
    parsed = {slot: parse_amount(slot, value) for slot, value in given.items()}
    return {slot: amount for slot, amount in sorted(parsed.items()) if amount}


def format_amount(slot: str, amount: int) -> str:
    """Format an amount in base units for display, such as ``1.5`` or ``4GiB``."""
    if slot == "mem":
        for factor, unit in ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if amount >= factor:
                return f"{amount / factor:.3g}{unit}"

        return f"{amount}B"

    if slot == JOBS or slot.endswith(".device"):
        return str(amount)

    return (
        f"{Decimal(amount) / 1000:f}".rstrip("0").rstrip(".")
        if amount % 1000
        else str(amount // 1000)
    )


def format_slots(slots: Slots) -> str:
    return (
        " ".join(f"{slot}={format_amount(slot, amount)}" for slot, amount in sorted(slots.items()))
        or "nothing"
    )
