"""Picture of a pipeline as SVG: a box for each step, placed from left to right by the length of the
longest path to it. After ``_COLUMNS`` boxes, a path continues at the left, in the next band, so
that a picture is never wider than 1,024 pixels. Pure.

Elements of an array share one box. All text is escaped by the XML library, and the picture has no
scripts, styles or links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from xml.etree import ElementTree

from moorage.common.model.pipelines import After, StepState
from moorage.common.views.pipelines import PipelineView, StepView

_WIDTH = 180
_HEIGHT = 44
_GAP_X = 70
_GAP_Y = 18
_MARGIN = 16
_COLUMNS = 4
_GAP_BANDS = 40
_LETTERS = 24  # characters that fit in a box
_FILLS: Mapping[StepState, str] = {
    StepState.PENDING: "#e5e7eb",
    StepState.RUNNING: "#bfdbfe",
    StepState.SUCCEEDED: "#bbf7d0",
    StepState.FAILED: "#fecaca",
    StepState.STOPPED: "#fde68a",
    StepState.SKIPPED: "#ffffff",
}
_DASHES: Mapping[str, str] = {"failure": "6 4", "any": "2 4"}


def svg(view: PipelineView) -> str:
    """Draw a pipeline. ``view`` lists the steps, each after those that it waits for."""
    groups = {name: list(group) for name, group in groupby(view.steps, key=lambda step: step.name)}
    after = {name: elements[0].after for name, elements in groups.items()}
    places = _places(after)
    width = max((x for x, _ in places.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _HEIGHT + _MARGIN
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "role": "img",
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )
    _child(root, "title", f"pipeline {view.name}: {view.state}")
    for name, earlier in after.items():
        for dependency in earlier:
            _edge(root, dependency, places[dependency.step], places[name])
    for name, elements in groups.items():
        _box(root, name, elements, places[name])

    return ElementTree.tostring(root, encoding="unicode")


def _places(after: Mapping[str, Sequence[After]]) -> dict[str, tuple[int, int]]:
    """The upper left corner of each box."""
    depths: dict[str, int] = {}
    rows: dict[str, int] = {}
    heights: dict[int, int] = {}  # number of boxes by depth
    for name, earlier in after.items():
        depth = depths[name] = 1 + max(
            (depths[dependency.step] for dependency in earlier), default=-1
        )
        rows[name] = heights.get(depth, 0)
        heights[depth] = rows[name] + 1

    tops = [_MARGIN]  # of each band
    for first in range(0, len(heights), _COLUMNS):
        tallest = max(heights[depth] for depth in range(first, len(heights))[:_COLUMNS])
        tops.append(tops[-1] + tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + _GAP_BANDS)

    return {
        name: (
            _MARGIN + depth % _COLUMNS * (_WIDTH + _GAP_X),
            tops[depth // _COLUMNS] + rows[name] * (_HEIGHT + _GAP_Y),
        )
        for name, depth in depths.items()
    }


def _edge(
    root: ElementTree.Element, after: After, start: tuple[int, int], end: tuple[int, int]
) -> None:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    if x1 < x2:
        path = f"M{x1} {y1}C{x1 + _GAP_X // 2} {y1} {x2 - _GAP_X // 2} {y2} {x2} {y2}"
    else:
        # The box is in a later band: the line runs between the columns, and above its box.
        above = end[1] - _GAP_Y // 2
        path = f"M{x1} {y1}h{_MARGIN // 2}V{above}H{x2 - _MARGIN // 2}V{y2}H{x2}"

    line = {"d": path, "fill": "none", "stroke": "#6b7280"}
    if after.on in _DASHES:
        line["stroke-dasharray"] = _DASHES[after.on]

    of = f" of {after.of}" if after.of else ""
    _child(_child(root, "path", "", line), "title", f"{after.step}: {after.on}{of}")


def _box(
    root: ElementTree.Element, name: str, elements: Sequence[StepView], place: tuple[int, int]
) -> None:
    x, y = place
    states = [element.state for element in elements]
    box = _child(root, "g", "")
    _child(box, "title", f"{name}: {_progress(elements, states)}")
    _child(
        box,
        "rect",
        "",
        {
            "x": str(x),
            "y": str(y),
            "width": str(_WIDTH),
            "height": str(_HEIGHT),
            "rx": "6",
            "fill": _FILLS[_worst(states)],
            "stroke": "#374151",
        },
    )

    shown = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    _child(box, "text", shown, {"x": str(x + 8), "y": str(y + 18), "fill": "#111827"})
    _child(
        box,
        "text",
        _progress(elements, states)[: _LETTERS + 4],
        {"x": str(x + 8), "y": str(y + 35), "fill": "#374151", "font-size": "11"},
    )


def _worst(states: Sequence[StepState]) -> StepState:
    """The state shown for an array: failed takes precedence over unfinished, and unfinished over
    succeeded."""
    order = (
        StepState.FAILED,
        StepState.STOPPED,
        StepState.RUNNING,
        StepState.PENDING,
        StepState.SKIPPED,
        StepState.SUCCEEDED,
    )
    return next(state for state in order if state in states)


def _progress(elements: Sequence[StepView], states: Sequence[StepState]) -> str:
    first = elements[0]
    if first.index is not None:
        return f"{len(states)}: " + ", ".join(
            f"{states.count(state)} {state}" for state in StepState if state in states
        )

    why = (
        f" ({first.reason})"
        if first.state in (StepState.FAILED, StepState.SKIPPED) and first.reason
        else ""
    )
    return f"{first.state}{why}"


def _child(
    parent: ElementTree.Element, tag: str, text: str, attributes: Mapping[str, str] | None = None
) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag, dict(attributes or {}))
    # XML cannot hold most control characters, even escaped.
    child.text = "".join(letter if letter.isprintable() else "�" for letter in text) or None
    return child
