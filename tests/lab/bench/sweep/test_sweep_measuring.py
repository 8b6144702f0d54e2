"""One setting measured on tiny models: its figures, and results without a speed."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from decoder.errors import ConfigError, DeviceError, PromptError
from dynatui.lab.bench.contenders import own
from dynatui.lab.bench.samples import Samples
from dynatui.lab.bench.summary import Difference
from dynatui.lab.bench.sweep import measuring
from dynatui.lab.bench.sweep.job import OnSettings
from dynatui.lab.bench.sweep.measuring import measured_settings, ready
from dynatui.lab.bench.sweep.outcome import Outcome, Refused
from dynatui.lab.bench.sweep.spaces import SPACES, Shard
from tests.decoder.makers import TinyModels

AXES = {"tau_h": (0.7, 0.9), "tau_l": (0.2,), "T": (8, 12)}


def job(models: TinyModels, **changes: Any) -> OnSettings:
    pair = models.pair("neox")
    given: dict[str, Any] = {
        "space": "thresholds",
        "axes": AXES,
        "prompts": ("The tree grows where", "A small model guesses"),
        "target": str(pair.target),
        "draft": str(pair.draft),
        "device": "cpu",
        "dtype": "float32",
    }
    return OnSettings(**given | changes)


def nothing_said(_line: str) -> None:
    pass


def test_a_setting_is_measured_beside_ar_and_the_reference(tiny_models: TinyModels) -> None:
    asked, _, measure = ready(job(tiny_models), nothing_said)
    assert asked.dtype == "float32"
    assert asked.reference["d_max"] == 8
    found = measure(asked.settings[0])
    assert isinstance(found, Outcome)
    assert found.speed.value > 0
    assert found.speed.low is not None
    assert found.over_reference is not None
    assert 1 <= found.tokens_per_round <= 9
    assert 1 <= found.rounds <= 8
    assert found.nodes_per_round > 0
    assert 0 <= (found.acceptance_rate or 0) <= 1


def test_a_stopped_sweep_goes_on_where_it_was_stopped(tiny_models: TinyModels, tmp_path: Path) -> None:
    shard = Shard(1, 2)
    with closing(measured_settings(job(tiny_models), tmp_path, shard, nothing_said)) as reports:
        first = [next(reports).settled for _ in range(3)]
    rest = [report.settled for report in measured_settings(job(tiny_models), tmp_path, shard, nothing_said)]
    assert (first, rest) == ([0, 0, 1], [1, 1, 2])
    assert len((tmp_path / "sweep-1-of-2.jsonl").read_bytes().splitlines()) == 3


def test_another_sweep_is_not_mixed_into_a_log(tiny_models: TinyModels, tmp_path: Path) -> None:
    next(measured_settings(job(tiny_models), tmp_path, Shard(), nothing_said))
    with pytest.raises(ConfigError, match=r"was started with other values of seed; give the same values, or set"):
        next(measured_settings(job(tiny_models, seed=1), tmp_path, Shard(), nothing_said))


def test_texts_are_as_long_as_a_setting_says(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    def noted(name: str, group: str, method: str, config: Any) -> Any:
        lengths.append((name, config.max_new_tokens))
        return own(name, group, method, config)

    monkeypatch.setattr(measuring, "own", noted)
    asked, _, measure = ready(job(tiny_models), nothing_said)
    for setting in asked.settings[:2]:
        measure(setting)
    assert lengths == [(name, length) for length in (8, 12) for name in ("ar", "reference", "setting")]


def test_a_text_that_differs_has_no_speed_but_a_reason(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longer(name: str, group: str, method: str, config: Any) -> Any:
        another = type(config)(config.methods, config.max_new_tokens - 1, parameters=config.parameters)
        return own(name, group, method, another if name == "setting" else config)

    monkeypatch.setattr(measuring, "own", longer)
    asked, _, measure = ready(job(tiny_models), nothing_said)
    assert measure(asked.settings[0]) == Refused(
        reason="the text of prompt 1 first differs from that of ar at token 7: one text is shorter"
    )


def differing_on(monkeypatch: pytest.MonkeyPatch, *ties: bool | None) -> None:
    """Makes the text of the first prompts differ from the text of ar, one prompt for each element of `ties`."""

    def same(samples: Samples, name: str) -> list[int]:
        return samples.prompts[len(ties) :] if name == "setting" else samples.prompts

    def found(*_given: object) -> list[Difference]:
        return [
            Difference(name="setting", prompt=prompt, index=3, near_tie=tie, gap=0.1) for prompt, tie in enumerate(ties)
        ]

    monkeypatch.setattr(Samples, "same", same)
    monkeypatch.setattr(measuring, "differences", found)


def test_a_text_that_differs_by_a_near_tie_has_no_speed_and_the_others_have(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing_on(monkeypatch, True)
    asked, _, measure = ready(job(tiny_models), nothing_said)
    found = measure(asked.settings[0])
    assert isinstance(found, Outcome)
    assert found.near_ties == 1


@pytest.mark.parametrize(
    ("ties", "said"),
    [
        ((True, True), "prompt 1 first differs from that of ar at token 3: a near tie"),
        ((True, False), "prompt 2 first differs from that of ar at token 3: no tie"),
    ],
)
def test_a_setting_of_other_texts_is_refused(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, ties: tuple[bool, ...], said: str
) -> None:
    differing_on(monkeypatch, *ties)
    asked, _, measure = ready(job(tiny_models), nothing_said)
    assert measure(asked.settings[0]) == Refused(reason=f"the text of {said}")


def test_a_setting_without_room_is_refused_and_the_others_go_on(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> Any:
        raise DeviceError("the memory of cpu is full")

    asked, _, measure = ready(job(tiny_models), nothing_said)
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "warmed_up", full)
        assert measure(asked.settings[0]) == Refused(reason="the memory of cpu is full")
    assert isinstance(measure(asked.settings[0]), Outcome)


def test_a_prompt_that_does_not_fit_beside_the_longest_text_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(PromptError, match="prompt 1 of 2: "):
        ready(job(tiny_models, axes={**AXES, "T": (8, 10_000)}), nothing_said)


def test_a_value_out_of_bounds_is_refused_before_models_are_loaded() -> None:
    with pytest.raises(ConfigError, match=r"tau_l is 0\.2 and tau_h is 7"):
        OnSettings("thresholds", {**AXES, "tau_h": (7.0,)}, ("x",)).request()
    with pytest.raises(ConfigError, match="max_new_tokens is 0; give 1 or more"):
        OnSettings("thresholds", {**AXES, "T": (0,)}, ("x",)).request()


def test_the_usual_grids_are_asked_for_without_models() -> None:
    for name, space in SPACES.items():
        assert OnSettings(name, dict(space.axes), ("x",)).request().settings
