"""Step reuse: which steps have the same meaning as earlier sessions, and which use their results.
Pure.

A step's meaning consists of what its session runs, and of the meanings of its inputs and of the
steps that it waits for. A step that follows a changed step therefore has another meaning, although
its own specification is unchanged. A step that waits for one without a meaning, which always runs
again, has no meaning either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from moorage.common.model.reuse import request_hash
from moorage.common.model.status import SessionType
from moorage.manager.workloads.pipeline_steps import NewStep
from moorage.manager.workloads.pipelines import ARRAY_PREFIX


def with_meanings(steps: Sequence[NewStep], project: str, *, forced: bool) -> list[NewStep]:
    """Add the hash of each step that may use a result or provide one.

    ``steps``: each after those that it waits for. ``forced``: each step runs, so none shares a live
    run; their results can be reused later."""
    known: dict[int, str | None] = {}
    found = []
    for step in steps:
        spec = step.spec
        reused = spec.type is SessionType.BATCH and spec.reuse not in (None, "never")
        meaning = _meaning(step, known, project) if reused else None
        known[step.position] = meaning
        if forced and reused:
            step = replace(step, spec=spec.model_copy(update={"reuse": "success"}))

        found.append(step if meaning is None else replace(step, meaning=meaning))

    return found


def _meaning(step: NewStep, known: Mapping[int, str | None], project: str) -> str | None:
    waits = step.waits
    if any(known.get(at) is None for at, _ in waits):
        return None

    # An element means the same in a larger array.
    env = {k: v for k, v in step.spec.env.items() if not k.startswith(ARRAY_PREFIX)}
    own = request_hash(step.spec.model_dump(mode="json") | {"env": env}, project)
    if not waits and step.files is None:
        return own

    files = None
    if step.files is not None:
        inputs = [[known[at], output, path] for at, output, path in step.files.inputs]
        files = [list(step.files.outputs), inputs]

    whole = json.dumps(
        [own, sorted([known[at], on] for at, on in waits), files], separators=(",", ":")
    )
    return hashlib.sha256(whole.encode()).hexdigest()


def with_results(
    steps: Sequence[NewStep], results: Mapping[int, str], ids: Mapping[int, str]
) -> list[NewStep]:
    """Add the sessions whose runs or results the steps use. ``results``: equal earlier sessions, by
    position. ``ids``: ids of the new sessions, by position.

    A step uses a result only if all steps that it waits for do so too; otherwise, those steps would
    run again while this one would not. If equal steps in one pipeline may share live runs, the
    first of them runs."""
    taken: set[int] = set()
    first: dict[str, int] = {}
    found = []
    for step in steps:
        shared = results.get(step.position)
        if shared is not None and all(at in taken for at, _ in step.waits):
            taken.add(step.position)
            found.append(replace(step, adopted_from=shared))
        elif step.meaning is None or step.spec.reuse not in ("live", "both"):
            found.append(step)
        elif step.meaning in first:
            found.append(replace(step, adopted_from=ids[first[step.meaning]]))
        else:
            first[step.meaning] = step.position
            found.append(step)

    return found
