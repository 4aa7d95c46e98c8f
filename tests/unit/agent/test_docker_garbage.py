"""Which images may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.docker.image_gc import YOUNG_S, Disk, Image, ImageGcRules, begins, enough, may_go

NOW = 1_000_000.0
OLD, OLDER, NEW = NOW - YOUNG_S, NOW - 9000, NOW - YOUNG_S + 1
IMAGES = [
    Image("old", size=10, used_at=OLD, ours=True),
    Image("older", size=10, used_at=OLDER, ours=True),
    Image("older-large", size=90, used_at=OLDER, ours=True),
    Image("new", size=90, used_at=NEW, ours=True),
    Image("theirs", size=90),
    Image("busy", size=90, used_at=OLDER, ours=True),
]


@pytest.mark.parametrize(
    ("rules", "going"),
    [
        (ImageGcRules(), ["older-large", "older", "old"]),
        (ImageGcRules(whose="any"), ["theirs", "older-large", "older", "old"]),
    ],
)
def test_the_least_recently_used_go_first(rules: ImageGcRules, going: list[str]) -> None:
    assert [image.id for image in may_go(IMAGES, {"busy"}, rules, NOW)] == going


@pytest.mark.parametrize(
    ("used", "mode", "begin", "stop"),
    [
        (84, "on", False, False),
        (85, "on", True, False),
        (99, "dry-run", True, False),
        (99, "off", False, False),
        (75, "on", False, False),
        (74, "on", False, True),
    ],
)
def test_when_it_begins_and_when_it_is_enough(used: int, mode: str, begin: bool, stop: bool) -> None:
    rules, disk = replace(ImageGcRules(), mode=mode), Disk(total=100, free=100 - used)  # type: ignore[arg-type]
    assert (begins(disk, rules), enough(disk, rules)) == (begin, stop)


IDS = st.sampled_from("abcdefgh")
ANY = st.builds(Image, IDS, size=st.integers(0, 9), used_at=st.floats(0, NOW), ours=st.booleans())


@given(st.lists(ANY, unique_by=lambda image: image.id), st.sets(IDS), st.sampled_from(["pulled", "any"]))
def test_nothing_goes_that_is_needed_or_not_ours(images: list[Image], busy: set[str], whose: str) -> None:
    going = may_go(images, busy, ImageGcRules(whose=whose), NOW)  # type: ignore[arg-type]
    assert not {image.id for image in going} & busy
    assert whose == "any" or all(image.ours for image in going)
    assert all(NOW - image.used_at >= YOUNG_S for image in going)
    assert [image.used_at for image in going] == sorted(image.used_at for image in going)
    assert len(set(going)) == len(going)
