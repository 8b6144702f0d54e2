"""Drafting `selector` through the engine: choices, features, and refused selectors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, Steering, decode
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.drawn_drafter import DrawnDrafter, ShapeChoice
from decoder.draft.proposer import Proposal
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Knob, Round
from decoder.methods.delayed import Delayed
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector.actions import ACTIONS, ONE_PATH, number
from decoder.selector.chooser import load
from decoder.selector.policy import Policy
from decoder.selector.stored import Fingerprint, SelectorInfo, fingerprint, write_selector
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.rows import Row
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.makers import PROMPT, TinyModels, play

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
    policy.begin_with(torch.eye(len(ACTIONS))[number(CHOSEN)] * 100)
    return kept(tmp_path_factory.mktemp("steady"), policy, replaced(fingerprint(engine.pair), hidden=()))


def replaced(pair: Fingerprint, **changes: Any) -> Fingerprint:
    return Fingerprint(**{**{name: getattr(pair, name) for name in pair.__struct_fields__}, **changes})


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


@pytest.mark.parametrize("verifier", VERIFIER_NAMES)
def test_at_temperature_0_it_writes_the_text_of_ar(
    engine: Engine, random_file: Path, verifier: str, shapes: list[DelayedTree]
) -> None:
    run = play(engine, config(random_file, verifier, temperature=0))
    assert run.tokens("delayed") == run.tokens("ar")
    if verifier == "block":
        assert all(shape.canonical().k == 1 for shape in shapes)
    else:
        assert len(set(shapes)) > 1


def test_the_first_round_has_the_given_shape_and_the_others_the_chosen_one(
    engine: Engine, steady_file: Path, shapes: list[DelayedTree]
) -> None:
    rounds = play(engine, config(steady_file)).rounds("delayed")
    assert shapes == [FIRST] + [CHOSEN] * (len(rounds) - 1)
    assert max(len(event.tokens) for event in rounds) <= 1 + CHOSEN.most_nodes


def test_a_verifier_of_one_path_is_given_one(engine: Engine, random_file: Path, shapes: list[DelayedTree]) -> None:
    play(engine, config(random_file, "block"))
    assert len(set(shapes)) > 1
    assert all(ONE_PATH[number(shape)] for shape in shapes)


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


def test_it_can_be_turned_on_and_off_while_it_runs(
    engine: Engine, steady_file: Path, shapes: list[DelayedTree]
) -> None:
    own = Delayed("specinfer", "delayed", 2, 0, 1, selector=str(steady_file))
    steering, knobs = Steering(), []
    for event in decode(engine, PROMPT, RunConfig(("delayed",), 40, temperature=0.8, delayed=own), steering):
        if isinstance(event, Round) and event.round in (1, 4):
            steering.turn("drafting", 3 if event.round == 1 else 1)
        if isinstance(event, Knob):
            knobs.append((event.name, event.new))
    assert knobs == [("drafting", 3), ("drafting", 1)]
    assert set(shapes[:2]) == {DelayedTree(2, 0, 1)}
    assert set(shapes[2:5]) == {CHOSEN}
    assert set(shapes[5:]) == {DelayedTree(2, 0, 1)}


def test_without_a_selector_no_knob_turns_one_on(engine: Engine) -> None:
    assert Delayed("specinfer", "delayed", selector="").ends()["drafting"] == (1, 2)
    assert Delayed("specinfer", "delayed", selector="x").ends()["drafting"] == (1, 3)
    steering = Steering()
    steering.turn("drafting", 3)
    own = Delayed("specinfer", "delayed")
    run = RunConfig(("delayed",), 4, temperature=0.8, delayed=own)
    knobs = [event.new for event in decode(engine, PROMPT, run, steering) if isinstance(event, Knob)]
    assert knobs == [2]


def test_under_a_verifier_of_one_path_it_is_not_turned_off_into_several() -> None:
    selecting = Delayed("block", "selector", 2, 2, 2, selector="x")
    assert selecting.ends()["drafting"] == (3, 3)
    assert replace(selecting, k=1).turned("drafting", 2).drafting == "delayed"


def test_a_selector_of_another_verifier_serves_too(engine: Engine, steady_file: Path) -> None:
    run = play(engine, config(steady_file, "traversal", temperature=0))
    assert run.tokens("delayed") == run.tokens("ar")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"target": "other"}, "was trained for other with draft, but this pair is target with draft; make one with"),
        ({"vocabulary": 7}, "was trained for a vocabulary of 7 tokens, but target with draft has "),
        ({"hidden": (5, 5, 5)}, "was trained for hidden rows of widths 5 and 5, but target with draft has "),
    ],
)
def test_a_selector_of_another_pair_is_refused(
    engine: Engine, tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    own = fingerprint(engine.pair.observed())
    pair = replaced(own, **changes)
    file = kept(tmp_path, Policy(pair.hidden), pair)
    line = line.replace("target", own.target).replace("draft", own.draft)
    with pytest.raises(ConfigError, match=line) as refused:
        play(engine, config(file))
    assert refused.value.exit_code == 2
    assert "dynatui selector collect" in str(refused.value)


def test_a_pair_without_a_selector_is_told_how_to_make_one(engine: Engine) -> None:
    with pytest.raises(
        ConfigError, match=r"dynatui comes without a selector for .*dynatui selector collect and dynatui"
    ):
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
