"""The redial policy: which manager is dialed next, and after how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.config.loader import load
from moorage.common.link.redial import LONGEST_BACKOFF_S, LONGEST_SPREAD_S, SPREAD_S, Redial
from moorage.common.model.addresses import split_addresses
from moorage.common.model.errors import ConfigError

A = "a:8701"
B = "b:8701"
C = "c:8701"


def exact(spread: float) -> float:
    return 1.0


def test_one_manager_is_dialed_with_a_doubling_backoff() -> None:
    redial = Redial([A], exact)
    delays = [redial.next_delay_s() for _ in range(7)]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert redial.current == A


def test_another_manager_is_dialed_at_once() -> None:
    redial = Redial([A, B, C], exact)
    dialed = [redial.current]
    delays = []
    for _ in range(6):
        delays.append(redial.next_delay_s())
        dialed.append(redial.current)
    assert dialed == [A, B, C, A, B, C, A]
    assert delays == [0.05, 0.05, 0.2, 0.2, 0.2, 0.4]


def test_after_a_success_the_others_are_tried_at_once_again() -> None:
    redial = Redial([A, B], exact)
    for _ in range(5):
        redial.next_delay_s()
    redial.succeeded()
    assert redial.next_delay_s() < SPREAD_S


@pytest.mark.parametrize(
    ("interval_s", "spread_s"),
    [(0.0, SPREAD_S), (10.0, 2.0), (25.0, 5.0), (600.0, LONGEST_SPREAD_S)],
    ids=["a small fleet", "2,001 agents", "10,000 agents", "240,000 agents"],
)
def test_agents_of_a_large_fleet_do_not_come_all_at_once(
    interval_s: float, spread_s: float
) -> None:
    redial = Redial([A, B], lambda spread: 1 + spread)  # the longest
    redial.set_interval(interval_s)
    assert redial.next_delay_s() == pytest.approx(spread_s)
    redial.succeeded()
    redial.set_interval(0.0)
    assert redial.next_delay_s() == pytest.approx(SPREAD_S)


def test_the_manager_that_was_found_better_is_next() -> None:
    redial = Redial([A, B, C], exact)
    redial.prefer(C)
    redial.next_delay_s()
    assert redial.current == C
    assert set(redial.others) == {A, B}


def test_learned_managers_are_added_once() -> None:
    redial = Redial([A], exact)
    assert redial.learn([A, B])
    assert not redial.learn([B, A])
    assert (redial.current, redial.others) == (A, (B,))


@given(st.integers(1, 6), st.lists(st.floats(-1, 1), min_size=1, max_size=100))
def test_every_manager_is_tried_and_no_delay_is_too_long(managers: int, draws: list[float]) -> None:
    values = iter(draws * 2)
    redial = Redial([str(n) for n in range(managers)], lambda spread: 1 + spread * next(values))
    dialed = set()
    for _ in range(len(draws)):
        dialed.add(redial.current)
        assert 0 <= redial.next_delay_s() <= LONGEST_BACKOFF_S * 1.25
    assert len(dialed) == min(managers, len(draws))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1,b:2", ("a:1", "b:2")),
        (" a:1 , b:2, a:1 ", ("a:1", "b:2")),
        ("[::1]:1,b:2", ("[::1]:1", "b:2")),
    ],
)
def test_addresses_are_separated_by_commas(text: str, addresses: tuple[str, ...]) -> None:
    assert split_addresses(text) == addresses
    given = load(None, {"MOORAGE_AGENT__MANAGER": text}, {"common.home": "/nonexistent"})
    assert split_addresses(given.settings.agent.manager) == addresses


@pytest.mark.parametrize("text", ["", "a:1,", "a", "a:1 b"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        split_addresses(text)
    with pytest.raises(
        ConfigError, match=r"agent\.manager = .* from flag --set: .* write host:port"
    ):
        load(None, {}, {"common.home": "/nonexistent", "agent.manager": text})


def test_a_configuration_file_may_list_them(tmp_path: Path) -> None:
    file = tmp_path / "moorage.toml"
    file.write_text('[proxy]\nmanager = ["a:1", "b:2"]\n')
    assert split_addresses(load(file, {}, {}).settings.proxy.manager) == ("a:1", "b:2")


def test_a_learned_manager_that_has_gone_is_forgotten() -> None:
    redial = Redial([A, B], exact)
    redial.learn([A, C])
    assert redial.others == (B, C), "one that was configured stays"
    redial.learn([A])
    assert redial.others == (B,)


def test_the_manager_in_use_is_never_forgotten() -> None:
    redial = Redial([A], exact)
    redial.learn([A, B])
    redial.next_delay_s()
    redial.learn([C])
    assert (redial.current, set(redial.others)) == (B, {A, C})


def test_failing_means_that_every_manager_has_failed_since_one_answered() -> None:
    redial = Redial([A, B], exact)
    seen = [redial.is_failing]
    for _ in range(2):
        redial.next_delay_s()
        seen.append(redial.is_failing)
    redial.succeeded()
    assert [*seen, redial.is_failing] == [False, False, True, False]
