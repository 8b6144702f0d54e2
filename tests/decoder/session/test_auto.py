"""The method auto in the engine writes the text of plain decoding for any costs of drafting."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from decoder import Fixed, RunConfig
from decoder.draft.auto_drafter import PROBED_ROWS
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.draft.tree_size.loss_limit import PATIENCE, PLAIN_EVERY
from decoder.engine import Engine
from decoder.events import LENGTH
from decoder.methods.auto import Auto
from decoder.tree import depths
from tests.decoder.makers import PROMPT, Played, TinyModels, play, with_pair
from tests.decoder.session.made_costs import DEAR, FREE, WIDE, priced, some_costs, some_rules
from tests.tiny import FAMILIES


def by_auto(engine: Engine, rules: Auto, limit: int = 32) -> Played:
    return play(engine, RunConfig(("auto",), limit, auto=rules))


@pytest.mark.parametrize("kinship", ["", "-strange"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_text_is_that_of_plain_greedy_search_whatever_rounds_cost(
    tiny_models: TinyModels, seed: int, family: str, kinship: str
) -> None:
    luck = random.Random(f"{seed} {family} {kinship}")
    pair = tiny_models.pair(family + kinship)
    for _ in range(2):
        played = by_auto(priced(tiny_models.loaded(pair, "float64"), some_costs(luck)), some_rules(luck))
        assert played.tokens("auto") == tiny_models.generate(pair, "float64", PROMPT, 32)


def test_some_of_these_rounds_drafted_and_some_did_not(tiny_models: TinyModels) -> None:
    """Otherwise the test above would prove little."""
    luck = random.Random(0)
    pair = tiny_models.engine("neox", "float64")
    rounds = [
        event for _ in range(12) for event in by_auto(priced(pair, some_costs(luck)), some_rules(luck)).rounds("auto")
    ]
    sizes = {len(event.tokens) for event in rounds}
    assert 1 in sizes
    assert max(sizes) > 8


def test_costs_that_are_measured_here_give_the_same_text(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded = replace(tiny_models.loaded(pair, "float32"), costs={})
    assert by_auto(loaded, WIDE, 100).tokens("auto") == tiny_models.generate(pair, "float32", PROMPT, 100)
    assert loaded.costs


def test_where_drafting_is_too_dear_every_round_is_plain(tiny_models: TinyModels) -> None:
    rounds = by_auto(priced(tiny_models.engine("neox"), DEAR), WIDE, PATIENCE - 2).rounds("auto")
    assert len(rounds) == PATIENCE - 2
    assert {(len(event.tokens), event.draft_forwards, len(event.committed)) for event in rounds} == {(1, 0, 1)}


def test_where_drafting_costs_nothing_every_round_drafts(tiny_models: TinyModels) -> None:
    rounds = by_auto(priced(tiny_models.engine("neox"), FREE), WIDE).rounds("auto")
    assert all(len(event.tokens) > 1 or event.limited_by == LENGTH for event in rounds)
    assert len(rounds) < PLAIN_EVERY


@pytest.mark.parametrize(
    ("rules", "deepest", "widest"),
    [
        (replace(WIDE, d0=1, d_max=2), 2, 3),
        (replace(WIDE, branching=(1, 1, 1), rho_deep=0), 12, 1),
        (replace(WIDE, branching=(3, 3, 3), rho_stop=1, rho_deep=1), 1, 3),
        (replace(WIDE, d0=2, rho_deep=1), 2, 3),
    ],
    ids=["D_max", "branching", "rho_stop", "D0"],
)
def test_what_a_knob_cuts_stays_cut(tiny_models: TinyModels, rules: Auto, deepest: int, widest: int) -> None:
    """Lookups are off because these knobs limit only the draft model's branches."""
    rules = replace(rules, lookup=False)
    rounds = by_auto(priced(tiny_models.engine("neox"), FREE), rules).rounds("auto")
    assert max(max(depths(event.parents)) for event in rounds) == deepest
    assert max(event.parents.count(node) for event in rounds for node in event.parents) == widest


def test_rounds_without_a_draft_leave_history_alone(tiny_models: TinyModels) -> None:
    rules = replace(WIDE, history=True, window=2)
    played = by_auto(priced(tiny_models.engine("neox"), DEAR), rules)
    assert played.turned("auto", "history") == []
    assert {event.knobs.d0 for event in played.rounds("auto") if event.knobs} == {rules.d0}


@pytest.mark.wall_time
def test_costs_are_measured_once_for_texts_of_about_one_length(tiny_models: TinyModels) -> None:
    pair = replace(tiny_models.engine("neox"), costs={})
    started = time.perf_counter()
    short = pair.costs_of(20)
    # This takes a second on an idle machine.
    assert time.perf_counter() - started < 10
    assert pair.costs_of(30) is short
    assert pair.costs_of(100) is not short


def test_every_cost_that_is_measured_is_above_zero(tiny_models: TinyModels) -> None:
    engine = replace(tiny_models.engine("neox"), costs={})
    for rows in (1, engine.pair.context):
        found = measure_costs(engine.pair, rows)
        assert all(seconds > 0 for curve in vars(found).values() for seconds in curve.by_rows()[1:])


@pytest.mark.parametrize("missed", [PROBED_ROWS // 2, 2 * PROBED_ROWS])
def test_a_silent_draft_is_judged_by_what_it_would_have_guessed_for_the_latest_tokens(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, missed: int
) -> None:
    probed: list[tuple[list[int], list[int]]] = []

    def probe_draft(
        _: TreeSizeController, guesses: Sequence[tuple[Sequence[int], object]], text: Sequence[int]
    ) -> None:
        probed.append(([tokens[0] for tokens, _ in guesses], list(text)))

    monkeypatch.setattr(TreeSizeController, "probe_draft", probe_draft)
    monkeypatch.setattr("decoder.draft.tree_size.loss_limit.LossLimit._least_patience", missed)
    engine = priced(tiny_models.engine("neox", "float64"), DEAR)
    text = by_auto(with_pair(engine, draft=engine.pair.target), WIDE, missed + 1).tokens("auto")
    guessed, chosen = probed[0]
    assert guessed == chosen
    assert chosen == text[max(0, missed - PROBED_ROWS) : missed - 1]


def test_a_draft_that_caught_up_in_two_passes_guesses_as_in_one(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox", "float64")
    text, found, growth = [5, 9, 2, 7, 7, 3, 8, 1], list[list[list[int]]](), Fixed(branching=2).rule().growth
    for latest in (3, 8):
        drafter = ModelDrafter(DraftPasses(engine.pair.draft_model, engine.pair.vocabulary, 20))
        drafter.read(text[:2])
        found.append([guess.tokens for guess in drafter.catch_up_with_guesses(text, growth, latest)[0]])
        assert drafter.passes.cache.length == len(text)
    assert found[0] == found[1][-3:]
