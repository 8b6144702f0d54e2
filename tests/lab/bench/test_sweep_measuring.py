"""One setting measured on tiny models: its figures, and results without a speed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.errors import DeviceError, PromptError
from dynatui.lab.bench import Progress, sweep
from dynatui.lab.bench.contenders import own
from dynatui.lab.bench.spaces import SPACES, Shard, SweepRequest
from dynatui.lab.bench.summary import Difference, Samples
from dynatui.lab.bench.sweep import Kept, measure_sweep, ready
from dynatui.session import Models
from tests.decoder.makers import TinyModels
from tests.lab.bench.makers import on_cpu

AXES = {"tau_h": (0.7, 0.9), "tau_l": (0.2,), "T": (8, 12)}
KEY = "tau_h=0.7 tau_l=0.2 T=8"


def job(models: TinyModels, **changes: Any) -> tuple[Models, SweepRequest]:
    given: dict[str, Any] = {
        "space": "thresholds",
        "axes": AXES,
        "reference": msgspec.to_builtins(SPACES["thresholds"].base(None)),
        "prompts": ("The tree grows where", "A small model guesses"),
        "repeats": 1,
        "seed": 0,
    }
    return on_cpu(models.pair("neox")), SweepRequest(**given | changes)


def first(models: TinyModels) -> Kept:
    """Result of the first setting."""
    asked, _, measure = ready(*job(models), lambda _: None)
    return measure(asked.settings[0])


def test_a_stopped_sweep_goes_on_where_it_was_stopped(tiny_models: TinyModels, tmp_path: Path) -> None:
    said, shares = list[str](), list[float]()

    def once(steps: Iterator[Progress]) -> Iterator[Progress]:
        shares.append(next(steps).share)
        yield from ()
        raise KeyboardInterrupt

    asked = job(tiny_models, axes={"tau_h": (0.7,), "tau_l": (0.2,), "T": (8, 12)})
    assert measure_sweep(*asked, tmp_path, Shard(), said.append, once).interrupted
    log = tmp_path / "sweep-1-of-1.jsonl"
    assert len(log.read_bytes().splitlines()) == 2
    whole = measure_sweep(*asked, tmp_path, Shard(), said.append)
    assert not whole.interrupted
    assert len(log.read_bytes().splitlines()) == 3
    assert [trial.state for trial in whole.report.trials] == ["done", "done"]
    assert shares[0] in (8 / 20, 12 / 20), "the share that is done counts tokens"
    measured = [line for line in said if line.endswith("are measured")]
    assert measured == ["0 of 2 settings are measured", "1 of 2 settings are measured"]
    assert any(line.startswith("2 of 2: tau_h=0.7 tau_l=0.2 T=") for line in said)


def test_a_setting_is_measured_beside_ar_and_the_reference_in_texts_of_its_length(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []

    def noted(name: str, group: str, method: str, config: Any) -> Any:
        lengths.append((name, config.max_new_tokens))
        return own(name, group, method, config)

    monkeypatch.setattr(sweep, "own", noted)
    asked, _, measure = ready(*job(tiny_models), lambda _: None)
    assert (asked.dtype, asked.reference["d_max"]) == ("float32", 8)
    kept, _ = map(measure, asked.settings[:2])
    assert lengths == [(name, length) for length in (8, 12) for name in ("ar", "reference", "setting")]
    found: Any = kept.outcome
    assert (kept.key, kept.reason) == (KEY, None)
    assert found.speed.value > 0
    assert 1 <= found.tokens_per_round <= 9
    assert 1 <= found.rounds <= 8
    assert found.nodes_per_round > 0
    assert 0 <= (found.acceptance_rate or 0) <= 1


def test_a_text_that_differs_has_no_speed_but_a_reason(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longer(name: str, group: str, method: str, config: Any) -> Any:
        another = type(config)(config.methods, config.max_new_tokens - 1, parameters=config.parameters)
        return own(name, group, method, another if name == "setting" else config)

    monkeypatch.setattr(sweep, "own", longer)
    assert first(tiny_models) == Kept(
        key=KEY, reason="the text of prompt 1 first differs from that of ar at token 7: one text is shorter"
    )


@pytest.mark.parametrize(
    ("ties", "reason"),
    [
        ((True,), None),
        ((True, True), "the text of prompt 1 first differs from that of ar at token 3: a near tie"),
        ((True, False), "the text of prompt 2 first differs from that of ar at token 3: no tie"),
    ],
)
def test_a_near_tie_is_forgiven_on_some_prompts_and_another_text_on_none(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, ties: tuple[bool, ...], reason: str | None
) -> None:
    def same(samples: Samples, name: str) -> list[int]:
        return samples.prompts[len(ties) :] if name == "setting" else samples.prompts

    def found(*_given: object) -> list[Difference]:
        return [
            Difference(name="setting", prompt=prompt, index=3, near_tie=tie, gap=0.1) for prompt, tie in enumerate(ties)
        ]

    monkeypatch.setattr(Samples, "same", same)
    monkeypatch.setattr(sweep, "differences", found)
    kept = first(tiny_models)
    assert kept.reason == reason
    assert (kept.outcome and kept.outcome.near_ties) == (None if reason else 1)


def test_a_setting_without_room_is_refused(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: object) -> Any:
        raise DeviceError("the memory of cpu is full")

    monkeypatch.setattr(sweep, "warmed_up", full)
    assert first(tiny_models) == Kept(key=KEY, reason="the memory of cpu is full")


def test_a_prompt_that_does_not_fit_beside_the_longest_text_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(PromptError, match="prompt 1 of 2: "):
        ready(*job(tiny_models, axes={**AXES, "T": (8, 10_000)}), lambda _: None)
