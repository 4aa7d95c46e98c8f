"""Pictures of pipelines: well-formed for any text, one box for each step, in graph order."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.pipelines import After, StepState
from moorage.common.views.pipelines import PipelineView, StepView
from moorage.manager.workloads import pipeline_picture

SVG = "{http://www.w3.org/2000/svg}"


def view(*steps: StepView, name: str = "train") -> PipelineView:
    return PipelineView(
        id="1", name=name, project="p", user="u", created_at=datetime(2026, 1, 1, tzinfo=UTC), created_by="u",
        state=StepState.RUNNING, counts={}, steps=list(steps),
    )  # fmt: skip


def step(name: str, *after: After, index: int | None = None, **more: object) -> StepView:
    fields: dict[str, object] = {
        "state": StepState.PENDING,
        "run": 1,
        "session_id": "",
        "session": "",
    } | more
    return StepView.model_validate({"name": name, "index": index, "after": list(after)} | fields)


def boxes(picture: str) -> dict[str, tuple[int, int]]:
    """The position of each box, by the text of its title."""
    found = {}
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        rect = group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert rect is not None
        found[title.text] = int(rect.attrib["x"]), int(rect.attrib["y"])

    return found


def test_a_step_stands_to_the_right_of_all_that_it_is_after() -> None:
    picture = pipeline_picture.svg(
        view(
            step("a", state=StepState.SUCCEEDED),
            step("b", After(step="a"), index=0, state=StepState.FAILED),
            step("b", After(step="a"), index=1, state=StepState.SUCCEEDED),
            step("c", After(step="a"), After(step="b", on="any")),
        )
    )
    found = boxes(picture)
    assert list(found) == ["a: succeeded", "b: 2: 1 succeeded, 1 failed", "c: pending"]
    assert [x for x, _ in found.values()] == sorted({x for x, _ in found.values()})
    paths = [
        one.attrib.get("stroke-dasharray", "")
        for one in ElementTree.fromstring(picture).iter(f"{SVG}path")
    ]
    assert paths == ["", "", "2 4"]


@given(name=st.text(min_size=1), reason=st.text())
def test_any_text_is_escaped(name: str, reason: str) -> None:
    picture = pipeline_picture.svg(
        view(step(name, state=StepState.FAILED, reason=reason), name=name)
    )
    tags = [one.tag.removeprefix(SVG) for one in ElementTree.fromstring(picture).iter()]
    assert tags == ["svg", "title", "g", "title", "rect", "text", "text"]


@given(
    st.lists(st.lists(st.integers(min_value=0, max_value=39), max_size=3), min_size=1, max_size=40)
)
def test_a_picture_fits_a_screen_and_its_boxes_do_not_overlap(earlier: list[list[int]]) -> None:
    steps = [
        step(f"s{n}-{'x' * 40}", *(After(step=f"s{m}-{'x' * 40}") for m in {*before} if m < n))
        for n, before in enumerate(earlier)
    ]
    picture = pipeline_picture.svg(view(*steps))
    root = ElementTree.fromstring(picture)
    width = int(root.attrib["width"])
    height = int(root.attrib["height"])
    assert width <= 1024
    places = list(boxes(picture).values())
    assert len(places) == len(steps)
    for n, (x, y) in enumerate(places):
        assert 0 < x <= width - 180
        assert 0 < y <= height - 44
        assert all(abs(x - x2) >= 180 or abs(y - y2) >= 44 for x2, y2 in places[:n])


def test_a_long_chain_continues_in_the_next_band() -> None:
    chain = [step("0"), *(step(str(n), After(step=str(n - 1))) for n in range(1, 30))]
    found = list(boxes(pipeline_picture.svg(view(*chain))).values())
    assert [x for x, _ in found[:5]] == [16, 266, 516, 766, 16]
    assert found[4][1] > found[3][1]
