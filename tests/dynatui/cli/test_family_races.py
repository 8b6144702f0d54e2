"""Whole races of common model families, as target and as draft: run from the command line, recorded and replayed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import decoder
from decoder import engine
from decoder.events import Event, Run, Summary
from decoder.methods import racing
from decoder.run import race
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.run.race import decode
from dynatui import main as cli
from dynatui.prompts import embedded
from dynatui.record.reader import read_events
from dynatui.record.recording import numbered_run
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE
from tests import tiny
from tests.decoder.any_family import DISTINCT, WINDOW, built, greedy
from tests.decoder.session.made_costs import PAYING
from tests.decoder.survey.tiny_models import tiny_config
from tests.dynatui.scripted_runs import state_of

FAMILIES = (
    "gemma3", "gemma4", "gpt_oss", "qwen3_next", "qwen3_5", "deepseek_v3", "mistral", "falcon_h1", "mamba2",
)  # fmt: skip
DRAFTS = ("gemma3", "qwen3_next", "deepseek_v3", "mamba2")
"""Families that draft for another family: one each of windows, hybrid states, latent attention and states alone."""
ROLES = [*((family, "target") for family in FAMILIES), *((family, "draft") for family in DRAFTS)]
ALIKE = {("gemma3", "target"), ("qwen3_5", "target"), *((family, "draft") for family in DRAFTS if family != "mamba2")}
"""Roles whose forward forms other roles have too: windows, hybrid states, and latent attention."""
PROMPT, COUNT = "The tree grows where the draft is sure", 20


def tiny_module(family: str) -> Any:
    config = tiny_config(family)
    for name in ("vocab_size", "vocab_size_per_layer_input"):
        if hasattr(of_text := config.get_text_config(), name):
            setattr(of_text, name, tiny.VOCABULARY)
    return built(config)


def pair_of(family: str, role: str) -> tuple[Any, Any]:
    """A target of the family with its kin as draft, or a target of another family with a draft of this one.

    Models of two families with the same embeddings agree often if the latest token has the most influence.
    """
    module = tiny_module(family)
    if role == "target":
        return module, tiny.kin(module, seed=2, noise=0.005)
    target = built(tiny.FAMILIES["llama"]())
    with torch.no_grad():
        first, last = 3 * target.get_input_embeddings().weight, target.get_output_embeddings().weight.clone()
        for each in (target, module):
            for weight in each.parameters():
                if weight.dim() > 1:
                    weight.mul_(0.2)
            each.get_input_embeddings().weight.copy_(first)
            each.get_output_embeddings().weight.copy_(last)
    return target, module


@pytest.mark.parametrize(
    ("family", "role"), [pytest.param(*each, marks=[pytest.mark.soak] * (each in ALIKE)) for each in ROLES]
)
def test_a_whole_race_is_plain_greedy_search_and_its_replay_ends_as_it_did(
    family: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = list[Event]()

    def watched(*given: Any) -> Iterator[Event]:
        for event in race.decode(*given):
            live.append(numbered_run(event, 1, 1))
            yield event

    monkeypatch.setitem(vars(decoder), "decode", watched)
    monkeypatch.setattr(engine, "measure_costs", lambda *_: PAYING)
    target, draft = pair_of(family, role)
    pair, path = tiny.save_pair(tmp_path, target, draft), tmp_path / "run.jsonl"
    models = ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]
    run = ["--prompt", PROMPT, "--max-new-tokens", str(COUNT), "--record", str(path), "--json"]
    assert cli.main([*models, *run]) == 0
    shown = capsys.readouterr().out
    begun, summary = live[0], live[-1]
    assert isinstance(begun, Run)
    assert isinstance(summary, Summary)
    right = greedy(target, begun.prompt_tokens, COUNT)
    assert {name: told["tokens"] for name, told in json.loads(shown)["methods"].items()} == dict.fromkeys(
        racing(), right
    )
    assert len(begun.prompt_tokens) > WINDOW
    assert len(set(right)) >= DISTINCT
    assert summary.methods["dynatree"].accepted
    assert cli.main(["replay", str(path), "--json"]) == 0
    assert capsys.readouterr().out == shown
    assert state_of(read_events(path)) == state_of(live)


def test_the_first_prompt_takes_few_passes_at_the_seed_that_was_chosen_for_it() -> None:
    config = RunConfig(("dynatree", "ar"), seed=EMBEDDED_SEED, temperature=EMBEDDED_TEMPERATURE)
    (summary,) = (event for event in decode(load_pair(), embedded()[0], config) if isinstance(event, Summary))
    figures = summary.methods["dynatree"]
    assert figures.committed == config.max_new_tokens
    assert figures.target_forwards is not None
    assert figures.target_forwards <= 85
    assert figures.identical_to_ar
