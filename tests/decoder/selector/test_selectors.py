"""Drafting `selector` through the engine: choices, features, and refused selectors."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from decoder import RunConfig, load_pair
from decoder.draft.delayed_shape import ACTIONS, LONGEST, MOST_NODES, ONE_PATH, DelayedTree, action_number
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.drawn_drafter import DrawnDrafter, ShapeChoice
from decoder.draft.proposer import Proposal
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.methods.delayed import Delayed
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector import latency
from decoder.selector.chooser import SHIPPED, load
from decoder.selector.latency import between_passes, counts, passes
from decoder.selector.policy import (
    LEAST,
    TIMES,
    Fingerprint,
    Policy,
    Root,
    SelectorInfo,
    fingerprint,
    read_info,
    scalars,
    write_selector,
)
from decoder.tree import depths
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.rows import Row
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.makers import TinyModels, play
from tests.decoder.session.all_methods import turned

FIRST = DelayedTree(1, 0, 2)
CHOSEN = DelayedTree(3, 1, 2)


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.engine("neox", "float64")


@pytest.fixture(scope="module")
def random_file(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A selector with random weights, whose choices vary."""
    torch.manual_seed(3)
    pair = fingerprint(engine.pair.observed())
    policy = Policy(pair.hidden)
    with torch.no_grad():
        policy.layers[-1].weight.mul_(30)
    return kept(tmp_path_factory.mktemp("random"), policy, pair)


@pytest.fixture(scope="module")
def steady_file(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A selector that always chooses the same shape."""
    policy = Policy(())
    policy.begin_with(torch.eye(len(ACTIONS))[action_number(CHOSEN)] * 100)
    return kept(tmp_path_factory.mktemp("steady"), policy, structs.replace(fingerprint(engine.pair), hidden=()))


def kept(folder: Path, policy: Policy, pair: Fingerprint, verifier: str = "specinfer") -> Path:
    file = folder / f"{verifier}.safetensors"
    write_selector(file, policy.eval(), SelectorInfo(pair, verifier, (1.0,), (1.0,), 1, 1.0))
    return file


def config(file: Path | str, verifier: str = "specinfer", **more: Any) -> RunConfig:
    own = Delayed(verifier, "selector", FIRST.k, FIRST.l1, FIRST.l2, selector=str(file))
    return RunConfig(("delayed", "ar"), 40, **{"temperature": 0.8, **more}, delayed=own)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[DelayedTree]:
    """Shapes of all proposals."""
    found: list[DelayedTree] = []
    propose = DrawnDrafter.propose

    def noted(self: DrawnDrafter, *given: Any) -> Proposal:
        proposal = propose(self, *given)
        assert proposal.shape is not None
        found.append(proposal.shape)
        return proposal

    monkeypatch.setattr(DrawnDrafter, "propose", noted)
    return found


def test_the_first_round_has_the_given_shape_and_the_others_the_chosen_one(
    engine: Engine, steady_file: Path, shapes: list[DelayedTree]
) -> None:
    rounds = play(engine, config(steady_file)).rounds("delayed")
    assert shapes == [FIRST] + [CHOSEN] * (len(rounds) - 1)
    assert max(len(event.tokens) for event in rounds) <= 1 + CHOSEN.most_nodes


def test_a_shape_is_chosen_before_anything_is_drawn(engine: Engine) -> None:
    class Counted(PhiloxGenerator):
        used = 0

        def choice(self, weights: Row) -> int:
            self.used += 1
            return super().choice(weights)

    generator, used = Counted(0), []

    def choose(_draft: DraftPasses, _text: Sequence[int]) -> ShapeChoice:
        used.append(generator.used)
        return ShapeChoice(CHOSEN)

    draft = DraftPasses(engine.pair.draft_model, engine.pair.vocabulary, 64)
    drafter = DrawnDrafter(draft, choose, Schedule(Sampling(1.0)), generator)
    for _ in range(2):
        drafter.propose([1, 2, 3, *used], Delayed().rule(), 32)
        drafter.commit([])
    assert used == [0, CHOSEN.l1 + CHOSEN.k * CHOSEN.l2]


def test_one_seed_is_one_text(engine: Engine, random_file: Path) -> None:
    texts = [play(engine, config(random_file, seed=seed)).tokens("delayed") for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


WRONG: dict[str, dict[str, Any]] = {
    r"for other with draft \(.*, but this pair is target with draft \(.*; make one with dynatui selector collect": {
        "target": "other"
    },
    r"for target with draft \(7 tokens, .*, but this pair is target with draft \(": {"vocabulary": 7},
    r"hidden rows of widths 5 and 5\), but this pair is target with draft \(": {"hidden": (5, 5, 5)},
}


@pytest.mark.parametrize(("line", "changes"), WRONG.items())
def test_one_of_another_pair_is_refused(engine: Engine, tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    own = fingerprint(engine.pair.observed())
    pair = structs.replace(own, **changes)
    file = kept(tmp_path, Policy(pair.hidden), pair)
    with pytest.raises(ConfigError, match=line.replace("target", own.target).replace("draft", own.draft)) as refused:
        play(engine, config(file))
    assert refused.value.exit_code == 2


def test_a_pair_without_a_selector_is_told_how_to_make_one(engine: Engine) -> None:
    with pytest.raises(ConfigError, match=r"comes without a selector for .*dynatui selector collect and dynatui"):
        play(engine, config("shipped"))


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 99])
def test_what_is_no_selector_is_refused(engine: Engine, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wrong.safetensors"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a selector"):
        load(str(file), engine.pair)
    with pytest.raises(ConfigError, match="there is no selector"):
        load(str(tmp_path / "none"), engine.pair)


def test_hidden_rows_are_those_of_the_pass(engine: Engine) -> None:
    """The rows before the final norm give the logits of the same pass."""
    model = engine.pair.target.observed()
    cache = model.new_cache(8)
    logits = model.read(cache, [1, 2, 3])
    assert model.hidden is not None
    assert model.hidden.shape == (3, model.hidden_width)
    native = engine.pair.target.runs_by
    torch.testing.assert_close(native._output(model.hidden[-1:])[0], logits)  # type: ignore[attr-defined]
    assert engine.pair.target.hidden is None
    assert engine.pair.target.hidden_width == 0


@pytest.mark.parametrize("verifier", VERIFIER_NAMES)
def test_at_temperature_0_it_writes_the_text_of_ar_and_a_verifier_of_one_path_is_given_one(
    engine: Engine, random_file: Path, verifier: str, shapes: list[DelayedTree]
) -> None:
    """A selector of another verifier serves too."""
    run = play(engine, config(random_file, verifier, temperature=0))
    assert run.tokens("delayed") == run.tokens("ar")
    assert verifier != "block" or all(ONE_PATH[action_number(shape)] for shape in shapes)
    assert len(set(shapes)) > 1 or verifier == "block"


def test_it_is_turned_on_and_off_while_it_runs(engine: Engine, steady_file: Path, shapes: list[DelayedTree]) -> None:
    own = Delayed("specinfer", "delayed", 2, 0, 1, selector=str(steady_file))
    asked = RunConfig(("delayed",), 40, temperature=0.8, delayed=own)
    run = turned(engine, asked, {2: [("drafting", 3)], 5: [("drafting", 1)]})
    assert [(event.name, event.new) for event in run.turned("delayed", "user")] == [("drafting", 3), ("drafting", 1)]
    assert [set(each) for each in (shapes[:2], shapes[2:5], shapes[5:])] == [
        {DelayedTree(2, 0, 1)},
        {CHOSEN},
        {DelayedTree(2, 0, 1)},
    ]


def test_no_knob_turns_on_a_selector_that_is_not_there_or_one_path_into_several(
    engine: Engine,
) -> None:
    without = Delayed("specinfer", "delayed", selector="")
    selecting = Delayed("block", "selector", 2, 2, 2, selector="x")
    assert without.ends()["drafting"] == (1, 2)
    assert replace(without, selector="x").ends()["drafting"] == (1, 3)
    asked = RunConfig(("delayed",), 4, temperature=0.8, delayed=Delayed("specinfer", "delayed"))
    assert [event.new for event in turned(engine, asked, {0: [("drafting", 3)]}).turned("delayed", "user")] == [2]
    assert selecting.ends()["drafting"] == (3, 3)
    assert replace(selecting, k=1).turned("drafting", 2).drafting == "delayed"


# Actions, features and times, and the selectors that come with dynatui


COSTS = Costs(
    plain=RowCostCurve({1: 1.0}),
    catch_up=RowCostCurve({1: 10.0, 2: 20.0}),
    draft=RowCostCurve({1: 100.0, 4: 400.0}),
    verify=RowCostCurve({1: 1000.0, 65: 65000.0}),
    host=RowCostCurve({1: 1.0}),
)
"""Costs with one unit of time per row, and a distinct decimal place for each kind of pass."""


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ((1, 0, 0), 20 + 1000),
        ((1, 0, 1), 20 + 2000),
        ((1, 0, 3), 20 + 2 * 100 + 4000),
        ((3, 0, 1), 20 + 4000),
        ((3, 0, 3), 20 + 2 * 300 + 10000),
        ((2, 2, 2), 20 + 100 + 100 + 200 + 7000),
        ((4, 8, 8), 20 + 8 * 100 + 7 * 400 + 41000),
    ],
)
def test_a_round_takes_its_passes_by_their_rows(shape: tuple[int, int, int], seconds: float) -> None:
    assert (counts() @ passes(COSTS))[action_number(DelayedTree(*shape))] == pytest.approx(seconds)


@pytest.mark.parametrize("verifier", ["specinfer", "block"])
def test_the_time_between_passes_is_measured(verifier: str) -> None:
    found = between_passes(16, verifier, Sampling(1.0), torch.device("cpu"))
    assert min(found) >= 0
    assert 0 < sum(found) < 1


P, Q, NOW = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25]), torch.tensor([1.0, 0.0, 0.0])
ROOT = Root(P, Q, NOW, (), 64, Sampling(0.7, top_p=0.9))


MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def embedded() -> Engine:
    return load_pair(dtype="float32", device="cpu")


def test_they_fit_the_embedded_pair_and_are_small(embedded: Engine) -> None:
    files = list(SHIPPED.glob("*.safetensors"))
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    assert {read_info(file).pair for file in files} == {fingerprint(embedded.pair.observed())}
    assert set(load("", embedded.pair.observed())) == {"specinfer", "traversal"}


@pytest.mark.parametrize("verifier", ["specinfer", "traversal"])
def test_their_choices_differ_from_round_to_round(embedded: Engine, verifier: str) -> None:
    config = RunConfig(("delayed",), 160, temperature=0.6, delayed=Delayed(verifier, "selector"))
    race = play(embedded, config, "The old man put down his lantern and looked at the boy.")
    assert len({max(depths(event.parents)) for event in race.rounds("delayed")[1:]}) > 1


# Actions and features


def test_there_are_233_distinct_actions_plain_decoding_among_them() -> None:
    assert len(ACTIONS) == len(set(ACTIONS)) == 233
    assert ACTIONS[action_number(DelayedTree(3, 0, 0))] == DelayedTree(1, 0, 0)
    assert (
        action_number(DelayedTree(1, 3, 4))
        == action_number(DelayedTree(1, 0, 7))
        == action_number(DelayedTree(4, 7, 0))
    )
    assert action_number(DelayedTree(2, 3, 4)) != action_number(DelayedTree(2, 4, 3))
    assert max(action.depth for action in ACTIONS) == LONGEST
    assert max(action.most_nodes for action in ACTIONS) == MOST_NODES
    assert sum(ONE_PATH) == LONGEST + 1


def test_each_round_reads_verifies_and_draws_level_by_level_with_time_between_passes() -> None:
    rows, parts = counts(), np.zeros(latency.SIZE)
    assert (rows[:, latency.READ] == 1).all()
    assert (rows[:, latency.VERIFY].sum(1) == 1).all()
    assert rows[:, latency.DRAFT].sum(1).tolist() == [max(0, action.depth - 1) for action in ACTIONS]
    parts[latency.ROUND], parts[latency.LEVEL], parts[latency.NODE] = 1000, 100, 1
    assert (rows @ parts)[action_number(DelayedTree(3, 2, 4))] == 1000 + 6 * 100 + 14


def test_scalars_are_those_of_the_paper_and_only_the_last_depend_on_the_machine() -> None:
    backward = 0.25 * math.log(0.25 / 0.5) + 0.25 * math.log(0.25 / LEAST)
    laws = [math.log(2), 1.5 * math.log(2), 0.0, 0.5 * math.log(2), backward, 0.5]
    settings = [math.log(64), 0.7, 0.9]
    for times in ((1e-3, 1e-2), (1.0, 2.0)):
        found = scalars(ROOT, *times).tolist()
        assert found == pytest.approx([*laws, *settings, *map(math.log, times)], abs=1e-5)
        assert found[TIMES] == pytest.approx([*map(math.log, times)])
    one = torch.tensor([0.0, 0.0, 1.0])
    assert scalars(Root(NOW, one, one, (), 1, Sampling(0.0)), 0.0, 0.0).isfinite().all(), "zeros of a truncated row"
