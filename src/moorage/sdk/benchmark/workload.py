"""Workload of a benchmark: prompts and their send times. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from moorage.common.model.errors import InvalidInput

# Most tokenizers have one token for each of these words with its preceding space.
_WORDS = (
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """``messages``: a chat in OpenAI's format. ``max_tokens``: limit of the answer; None means the
    model's own."""

    messages: tuple[dict[str, Any], ...]
    max_tokens: int | None = None

    @property
    def text(self) -> str:
        """The messages as one text, for an API without roles."""
        return "\n".join(str(message.get("content", "")) for message in self.messages)


def random_prompts(generator: Random, input_len: int, output_len: int | None) -> Iterator[Prompt]:
    """Yield an endless series of prompts of about ``input_len`` tokens. No two start alike, so a
    prefix cache does not help."""
    while True:
        words = " ".join(generator.choices(_WORDS, k=max(1, input_len)))
        yield Prompt(({"role": "user", "content": words},), output_len)


def read_dataset(lines: Iterable[str], output_len: int | None) -> list[Prompt]:
    """Read one JSON object per line, with ``prompt`` or ``messages``, and ``max_tokens`` or
    ``output_tokens``; ``output_len`` is the default. Raises ``InvalidInput``, which names the
    line."""
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue

        try:
            prompts.append(_prompt(json.loads(line), output_len))
        except (ValueError, TypeError) as error:
            raise InvalidInput(
                f"line {number} of the dataset is unusable: {error}",
                next_step='write each line like {"prompt": "What is a moorage?", "max_tokens": 64}',
            ) from None

    if not prompts:
        raise InvalidInput("the dataset has no prompts", next_step="write one JSON object per line")

    return prompts


def _prompt(given: Any, output_len: int | None) -> Prompt:
    if not isinstance(given, dict):
        raise TypeError("it is not a JSON object")

    messages = given.get("messages") or [{"role": "user", "content": given.get("prompt")}]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise TypeError("`messages` is not a list of objects")
    if any(not message.get("content") for message in messages):
        raise ValueError("it has neither `prompt` nor `messages` with `content`")

    limit = given.get("max_tokens", given.get("output_tokens", output_len))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"`max_tokens` is {limit!r}, not a positive number")

    return Prompt(tuple(messages), limit)


def gaps(generator: Random, rate: float, burstiness: float) -> Iterator[float]:
    """Yield an endless series of seconds between arrivals, at ``rate`` per second. ``burstiness``:
    1 is a Poisson process, less is bursty, more is even (the shape of a gamma distribution, as in
    vLLM)."""
    while True:
        yield generator.gammavariate(burstiness, 1.0 / (rate * burstiness))
