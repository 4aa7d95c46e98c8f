"""Watermarks and candidates of image garbage collection."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.docker.image_gc import (
    MIN_AGE_S,
    Disk,
    Image,
    ImageGcRules,
    gc_candidates,
    is_above_high_watermark,
    is_below_low_watermark,
)

NOW = 1_000_000.0
OLD = NOW - MIN_AGE_S
OLDER = NOW - 9000
NEW = NOW - MIN_AGE_S + 1
IMAGES = [
    Image("old", size=10, used_at=OLD, pulled=True),
    Image("older", size=10, used_at=OLDER, pulled=True),
    Image("older-large", size=90, used_at=OLDER, pulled=True),
    Image("new", size=90, used_at=NEW, pulled=True),
    Image("foreign", size=90),
    Image("in-use", size=90, used_at=OLDER, pulled=True),
]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (ImageGcRules(), ["older-large", "older", "old"]),
        (ImageGcRules(owners="any"), ["foreign", "older-large", "older", "old"]),
    ],
)
def test_least_recently_used_images_first(rules: ImageGcRules, expected: list[str]) -> None:
    assert [image.id for image in gc_candidates(IMAGES, {"in-use"}, rules, NOW)] == expected


@pytest.mark.parametrize(
    ("used", "mode", "above_high", "below_low"),
    [
        (84, "on", False, False),
        (85, "on", True, False),
        (99, "dry-run", True, False),
        (99, "off", False, False),
        (75, "on", False, False),
        (74, "on", False, True),
    ],
)
def test_watermarks(used: int, mode: str, above_high: bool, below_low: bool) -> None:
    rules = replace(ImageGcRules(), mode=mode)
    disk = Disk(total=100, free=100 - used)  # type: ignore[arg-type]
    assert (is_above_high_watermark(disk, rules), is_below_low_watermark(disk, rules)) == (
        above_high,
        below_low,
    )


IDS = st.sampled_from("abcdefgh")
ANY = st.builds(Image, IDS, size=st.integers(0, 9), used_at=st.floats(0, NOW), pulled=st.booleans())


@given(
    st.lists(ANY, unique_by=lambda image: image.id),
    st.sets(IDS),
    st.sampled_from(["pulled", "any"]),
)
def test_images_in_use_young_or_foreign_are_kept(
    images: list[Image], in_use: set[str], owners: str
) -> None:
    candidates = gc_candidates(images, in_use, ImageGcRules(owners=owners), NOW)  # type: ignore[arg-type]
    assert not {image.id for image in candidates} & in_use
    assert owners == "any" or all(image.pulled for image in candidates)
    assert all(NOW - image.used_at >= MIN_AGE_S for image in candidates)
    assert [image.used_at for image in candidates] == sorted(image.used_at for image in candidates)
    assert len(set(candidates)) == len(candidates)
