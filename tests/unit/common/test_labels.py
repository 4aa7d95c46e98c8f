"""User labels and selectors, following the rules of Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.examples import examples

from moorage.common.model.labels import matches, parse_selector
from moorage.common.model.spec import SessionSpec

LABELS = {"team": "vision", "example.com/stage": "dev", "empty": ""}
KEYS = st.sampled_from(["team", "a", "B_1", "example.com/stage", "x-y.z/name", "in", "notin"])
VALUES = st.sampled_from(["", "vision", "v1.2", "A_b-c", "in", "notin"])
REQUIREMENTS = st.one_of(
    KEYS,
    KEYS.map("!{}".format),
    st.tuples(KEYS, st.sampled_from(["=", "==", "!="]), VALUES).map("".join),
    st.tuples(
        KEYS, st.sampled_from([" in ", " notin "]), st.lists(VALUES, min_size=1, max_size=3)
    ).map(lambda t: f"{t[0]}{t[1]}({', '.join(t[2])})"),
)


@pytest.mark.parametrize(
    ("selector", "matched"),
    [
        ("team=vision", True),
        ("team==vision,example.com/stage=dev", True),
        ("team=speech", False),
        ("team!=speech", True),
        ("team!=vision", False),
        ("absent!=x", True),
        ("team in (speech, vision)", True),
        ("team notin (speech,vision)", False),
        ("absent notin (x)", True),
        ("absent in (x)", False),
        ("team", True),
        ("absent", False),
        ("!absent", True),
        ("!team", False),
        ("empty=", True),
        (" team = vision , !absent ", True),
    ],
)
def test_selector_matches_as_in_kubernetes(selector: str, matched: bool) -> None:
    assert matches(parse_selector(selector), LABELS) is matched


@pytest.mark.parametrize(
    "selector",
    [
        *[
            "",
            ",",
            "a,",
            "a,,b",
            "a=b c",
            "a in b",
            "a in (b",
            "=b",
            "a=b=c",
            "!a=b",
            "a=-b",
            "-a=b",
            "a" * 5000,
        ],
        *["a" * 5000, ",".join(["a"] * 33), "a=" + "b" * 64, "a/b/c=d", "Upper.example/a"],
    ],
)
def test_invalid_selectors_are_refused(selector: str) -> None:
    with pytest.raises(ValueError, match=r"selector|label"):
        parse_selector(selector)


@given(st.lists(REQUIREMENTS, min_size=1, max_size=5), st.dictionaries(KEYS, VALUES))
@examples(50)
def test_selector_means_all_of_its_parts(parts: list[str], labels: dict[str, str]) -> None:
    selector = parse_selector(",".join(parts))
    assert matches(selector, labels) == all(matches(parse_selector(part), labels) for part in parts)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"a": "x" * 1_000_000}, "has 1000000 characters; 63 are allowed"),
        ({"a" * 1_000_000: "x"}, "name of 1000000 characters; 63 are allowed"),
        ({f"{'a' * 254}/b": "x"}, "prefix of 254 characters; 253 are allowed"),
        ({"a b": "x"}, "'a b' is not valid"),
        ({"": "x"}, "is not valid"),
        ({"a": "-x"}, "is '-x'"),
        ({"a": "<script>"}, "is '<script>'"),
        ({"a": "x\n"}, "letters, digits"),
        ({f"k{n}": "" for n in range(33)}, "33 labels; 32 are allowed"),
    ],
)
def test_labels_that_break_a_limit_are_refused_briefly(
    labels: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        SessionSpec(command=["true"], user_labels=labels)
    message = caught.value.errors()[0]["msg"]
    assert problem in message
    assert len(message) < 300


def test_what_kubernetes_allows_is_allowed() -> None:
    labels = {"a": "", "app.kubernetes.io/name": "x_Y.z-1", "A" * 63: "v" * 63}
    assert SessionSpec(command=["true"], user_labels=labels).user_labels == labels
