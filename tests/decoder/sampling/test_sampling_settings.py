"""Sampling settings are checked, and a schedule gives the settings in force at each position."""

import math
from typing import Any

import pytest

from decoder import RunConfig
from decoder.errors import ConfigError
from decoder.sampling.settings import SAMPLING, Sampling, Schedule


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
    ],
)
def test_impossible_settings_are_refused_with_what_is_possible(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} is .*; give "):
        RunConfig(**given)


def test_a_run_is_greedy_unless_a_temperature_is_given() -> None:
    assert RunConfig().sampling.greedy
    assert RunConfig(top_p=0.5, top_k=3).sampling.greedy
    assert not RunConfig(temperature=0.6).sampling.greedy


def test_a_turned_temperature_is_the_next_run_s() -> None:
    assert RunConfig(top_p=0.9).turned("temperature", 0.7, SAMPLING).sampling == Sampling(0.7, 0, 0.9)


def test_truncation_counts_only_where_something_is_random() -> None:
    assert not Sampling(0.0, 5, 0.9).truncates
    assert Sampling(0.5, 5).truncates
    assert Sampling(0.5, 0, 0.9).truncates
    assert not Sampling(0.5).truncates


def test_changes_are_in_force_from_their_positions_on() -> None:
    hot, cold = Sampling(1.0), Sampling(0.3)
    schedule = Schedule()
    schedule.turn(10, cold)
    schedule.turn(20, hot)
    schedule.turn(20, cold)
    schedule.turn(30, Sampling())
    assert [schedule.at(place).temperature for place in (0, 9, 10, 19, 20, 29, 30, 99)] == [
        0,
        0,
        0.3,
        0.3,
        0.3,
        0.3,
        0,
        0,
    ]
    assert [schedule.greedy_from(place) for place in (0, 9, 29, 30)] == [False, False, False, True]
    assert [(start, sampling.temperature) for start, sampling in schedule.in_force(20)] == [(20, 0.3), (30, 0.0)]
