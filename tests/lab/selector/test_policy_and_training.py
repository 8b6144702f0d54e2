"""The network, its objective, and training on roots with a known best shape."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from decoder import RunConfig, decode, load_pair
from decoder.draft.delayed_shape import ACTIONS, action_number
from decoder.errors import ConfigError
from decoder.events import Round
from decoder.selector.policy import SCALARS, OneRoot, Policy, loss, read_selector, throughput
from dynatui.lab.bench import Progress
from dynatui.lab.selector.collect import TEST
from dynatui.lab.selector.train import Recipe, bases, chosen, gain, predict, train
from tests.lab.selector.made_roots import LONG, PAIR, SHORT, made_roots, manifest

RECIPE, BRIEF = Recipe("specinfer", epochs=14), Recipe("specinfer", epochs=8)
FEW = 240
"""Number of roots of a brief training."""


def losses(epochs: Iterable[Progress]) -> list[float]:
    return [float(epoch.line.split("loss ")[1].partition(",")[0]) for epoch in epochs]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    file = tmp_path_factory.mktemp("trained") / "selector.safetensors"
    return file, losses(train(made_roots(), manifest(), RECIPE, file))


def test_the_objective_is_that_of_equation_12_and_throughput_a_ratio_of_sums() -> None:
    scores, tokens, seconds = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 4.0]]), torch.tensor([[1.0, 2.0]])
    assert throughput(scores, tokens, seconds).tolist() == pytest.approx([5 / 3])
    rates, base = torch.tensor([2.0, 0.5, 0.9, 1.0]), torch.ones(4)
    mean = -(rates.log().mean())
    assert loss(rates, base, 0.0, 0.5).item() == pytest.approx(mean.item())
    assert loss(rates, base, 3.0, 0.5).item() == pytest.approx(mean.item() + 3 * (0.25 + 0.01) / 2)
    assert loss(rates, base, 3.0, 0.01).item() == pytest.approx(mean.item() + 3 * 0.25)


def test_scalars_that_do_not_vary_change_nothing() -> None:
    policy = Policy(()).eval()
    seen = torch.randn(9, len(SCALARS))
    seen[:, 4] = 3.0
    policy.scale_by(seen)
    moved = seen.clone()
    moved[:, 4] = 77.0
    assert torch.equal(policy((), seen), policy((), moved))


@pytest.mark.parametrize("widths", [PAIR.hidden, ()], ids=["hidden", "scalars alone"])
def test_one_root_at_a_time_has_the_same_scores(widths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    policy = Policy(widths).eval()
    for each in policy.parameters():
        each.data.add_(torch.randn_like(each), alpha=0.3)
    seen = torch.randn(5, len(SCALARS)) * 3
    seen[:, 4] = 3.0
    policy.scale_by(seen)
    rows, one = [torch.randn(5, width) * 40 for width in widths], OneRoot(policy)
    for root, expected in enumerate(policy(rows, seen)):
        found = one([row[root] for row in rows], seen[root])
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_scores_depend_on_hidden_rows_but_not_on_their_length() -> None:
    policy = Policy(PAIR.hidden).eval()
    rows, scalars = [torch.randn(2, width) for width in PAIR.hidden], torch.zeros(2, len(SCALARS))
    scores = policy(rows, scalars)
    assert scores.shape == (2, len(ACTIONS))
    torch.testing.assert_close(policy([row * 50 for row in rows], scalars), scores)
    assert not torch.allclose(policy([-rows[0], *rows[1:]], scalars), scores)


def test_it_learns_which_of_two_shapes_is_best_and_beats_the_best_static_shape(
    trained: tuple[Path, list[float]],
) -> None:
    (policy, about), lost = read_selector(trained[0]), trained[1]
    assert lost[-1] < min(0, lost[0] - 0.05)
    fresh = made_roots(seed=1)
    found = fresh.fastest("specinfer")
    wanted = torch.where(fresh.scalars[:, 2] > 0, action_number(SHORT), action_number(LONG))
    assert (chosen(policy, fresh, "specinfer", found) == wanted).float().mean() > 0.85
    base = bases(fresh, "specinfer", found)
    assert set(base.values()) == {action_number(LONG)}
    assert gain(policy, fresh, "specinfer", base, found) > 1.15
    assert about.gain > 1.15
    assert (about.pair, about.verifier, about.roots) == (PAIR, "specinfer", 720)


def test_what_is_predicted_is_of_prompts_that_were_not_trained_on(trained: tuple[Path, list[float]]) -> None:
    roots = made_roots()
    parts = predict(read_selector(trained[0])[0], "specinfer", roots, manifest())
    assert [part.sampling.temperature for part in parts] == [0.5, 1.0]
    assert sum(part.roots for part in parts) == len(roots.part(TEST)) == 240
    assert all(part.static == LONG and part.gain > 1 for part in parts)
    assert {shape for part in parts for shape, _ in part.common} >= {LONG, SHORT}


def test_training_needs_labelled_roots_of_several_prompts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 roots of 2 prompts are too few"):
        list(train(made_roots(4, 2), manifest(2), RECIPE, tmp_path / "x"))
    with pytest.raises(ConfigError, match="no roots were labelled for khisti, only for specinfer"):
        list(train(made_roots(), manifest(), Recipe("khisti"), tmp_path / "x"))


def test_training_that_was_stopped_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    """A generator that is suspended for ever has written as much as a killed process."""
    file, whole = tmp_path / "selector.safetensors", tmp_path / "whole.safetensors"
    steps = list(train(made_roots(FEW), manifest(), BRIEF, whole))
    stopped = train(made_roots(FEW), manifest(), BRIEF, file)
    assert [next(stopped) for _ in range(4)] == steps[:4]
    assert not file.exists()
    assert list(train(made_roots(FEW), manifest(), BRIEF, file)) == steps[4:]
    (policy, about), (twin, about_twin) = read_selector(file), read_selector(whole)
    weights = twin.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in policy.state_dict().items())
    assert about == about_twin


def test_choosing_takes_well_under_a_third_of_a_round_of_compiled_passes() -> None:
    """Choices and rounds of the embedded pair are timed in turn, because a busy machine slows both."""
    policy = Policy((384, 192, 192)).eval()
    rows, scalars = [torch.randn(1, width) for width in (384, 192, 192)], torch.zeros(1, len(SCALARS))
    choices_s, rounds_s = list[float](), list[float]()
    end = None
    for event in decode(load_pair(device="cpu", dtype="float32"), "It was", RunConfig(("dynatree",), 64)):
        if isinstance(event, Round) and end is not None:
            rounds_s.append(time.perf_counter() - end)
        with torch.inference_mode():
            start = time.perf_counter()
            int(policy(rows, scalars).argmax())
        end = time.perf_counter()
        choices_s.append(end - start)
    assert min(choices_s) < 0.3 * min(rounds_s)
