"""Link messages as a hostile peer would make them: any fields, with values at their bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

IDS = ("node-1", "01900000-0000-7000-8000-000000000000", "proxy-1")
TEXTS = (
    *(
        "",
        "x",
        "\0",
        "a\0b",
        "default",
        "../..",
        "127.0.0.1",
        "é" * 200,
        "a" * 70_000,
        "1",
        "-1",
        "{}",
    ),
    *(
        "vision/x",
        "u-member",
        "\u202e",
        "\r\n",
        "SHA256:x",
        "[]",
        '{"command": ["x"]}',
        "2026-01-01",
    ),
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    65535,
    65536,
    1 << 31,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 62,
    (1 << 63) - 1,
)
FLOATS = (0.0, -1.0, 1.5, 1e308, float("inf"), float("-inf"), float("nan"))
BYTES = (b"", b"\x00", b"\xff" * 9, b"\x0a\x02hi", b"\x0a\xff\xff\xff\xff\x0f", b"x" * 70_000)
MOST_DEEP = 4
MOST_REPEATED = 3
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


class Hostile:
    """Draws messages. ``names``: the peer's identity for the fields that state it, which are mostly
    truthful."""

    def __init__(self, seed: int, inner: tuple[type[Message], ...] = ()) -> None:
        self._random = random.Random(seed)
        self._inner = inner

    def message(self, descriptor: Descriptor, depth: int = 0) -> Message:
        made: Message = GetMessageClass(descriptor)()
        density = self._random.choice((0.1, 0.5, 1.0))
        for field in descriptor.fields:
            if depth == 0 or self._random.random() < density:
                self._fill(made, field, depth)
        return made

    def stream(self, descriptor: Descriptor) -> Iterator[Message]:
        for _ in range(self._random.randint(1, 3)):
            yield self.message(descriptor)

    def _fill(self, made: Message, field: FieldDescriptor, depth: int) -> None:
        count = self._random.randint(0, MOST_REPEATED) if field.is_repeated else 1
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, value = entry.fields
            for _ in range(count):
                getattr(made, field.name)[self._scalar(key)] = self._scalar(value)

            return

        for _ in range(count):
            if entry is not None:
                if depth < MOST_DEEP and self._random.random() < 0.7:
                    inner = self.message(entry, depth + 1)
                    target = getattr(made, field.name)
                    if field.is_repeated:
                        target.add().CopyFrom(inner)
                    else:
                        target.CopyFrom(inner)
            elif field.is_repeated:
                getattr(made, field.name).append(self._scalar(field))
            else:
                setattr(made, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        pick = self._random.choice
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return self._bytes()

            is_name = field.name.endswith("id") or field.name in ("name", "incarnation", "login")
            return pick(IDS) if is_name and self._random.random() < 0.7 else pick(TEXTS)

        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return pick((True, False))
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return pick(FLOATS)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return pick([one.number for one in field.enum_type.values])

        low, high = _BOUNDS[kind]
        return min(max(pick(NUMBERS), low), high)

    def _bytes(self) -> bytes:
        """At random, or a nested message, like kernels in reports."""
        if self._inner and self._random.random() < 0.5:
            inner = self._random.choice(self._inner)
            return self.message(inner.DESCRIPTOR, 1).SerializeToString()
        return self._random.choice(BYTES)
