"""A target that has more token ids than its draft decodes as without this draft."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gguf_files import write
from decoder import RunConfig, load_pair
from decoder.draft.delayed_shape import MOST
from decoder.engine import Engine
from decoder.errors import PromptError
from decoder.forward.language_model import fitted
from decoder.methods.auto import Auto
from decoder.methods.delayed import Delayed
from decoder.sampling.settings import Sampling
from decoder.selector.policy import scalars
from decoder.session.hf_assisted import as_wide_as
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.names import VERIFIER_NAMES
from dynatui.lab.bench.labels import TextRoots
from dynatui.lab.tuning.scoring import ScoredText, scored
from tests.decoder.laws.races import PAPER
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, play, with_pair
from tests.decoder.session.made_costs import FREE, priced
from tests.gguf_pair import needs_llama_cpp
from tests.tiny import VOCABULARY, train_tokenizer

WIDTH, LIMIT = 304, 24


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    loaded: Engine = tiny_models.engine("wide-target")
    return loaded


def added(engine: Engine) -> Engine:
    """The engine with a tokenizer whose tokens `<270>` to `<309>` have these ids."""
    tokenizer = train_tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(len(tokenizer), WIDTH + 6)])
    return with_pair(engine, tokenizer=tokenizer)


def played(engine: Engine, methods: tuple[str, ...], prompt: str = PROMPT, **more: Any) -> Played:
    return play(engine, RunConfig(methods, LIMIT, **{**PAPER, **more}), prompt)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"temperature": 1.0, "top_k": 20, "top_p": 0.9}],
                         ids=str)  # fmt: skip
def test_texts_of_the_races_have_ids_that_the_draft_lacks(engine: Engine, sampling: dict[str, Any]) -> None:
    """Otherwise that they are those of plain decoding would prove little."""
    assert max(played(engine, ("ar",), seed=3, **sampling).tokens("ar")) >= VOCABULARY


@needs_llama_cpp
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_they_are_written_where_llama_cpp_computes(tiny_models: TinyModels, tmp_path: Path, temperature: float) -> None:
    pair = tiny_models.pair("wide-target")
    file = write(pair.target, tmp_path / "wide.gguf", bos_token_id=0, eos_token_id=0)
    engine = load_pair(str(file), str(pair.draft), device="cpu")
    methods = ("ar", "linear", "fixed", "dynatree", "auto")
    run = played(engine, methods, temperature=temperature)
    alone = played(with_pair(engine, draft=None), ("ar",), temperature=temperature).tokens("ar")
    assert max(alone) >= VOCABULARY
    assert {method: run.tokens(method) for method in methods} == dict.fromkeys(methods, alone)


def test_a_text_ends_at_an_end_token_that_the_draft_lacks(tiny_models: TinyModels) -> None:
    whole = tiny_models.generate(tiny_models.pair("wide-target"), "float32", PROMPT, LIMIT)
    end = next(token for token in whole if token >= VOCABULARY)
    run = played(tiny_models.loaded(tiny_models.ending("wide-target", eos_token_id=end), "float32"), METHODS)
    expected = (whole[: whole.index(end) + 1], "eos")
    assert {name: (run.tokens(name), run.end(name).reason) for name in METHODS} == dict.fromkeys(METHODS, expected)


def test_a_prompt_may_contain_ids_that_only_the_target_has(tiny_models: TinyModels, engine: Engine) -> None:
    prompt, wide = f"<{WIDTH - 1}>{PROMPT}<{VOCABULARY}>", added(engine)
    ids = torch.tensor([wide.pair.tokenizer(prompt).input_ids])
    assert {WIDTH - 1, VOCABULARY} < set(ids[0].tolist())
    target = tiny_models.plain(tiny_models.pair("wide-target").target, "float32")
    expected = target.generate(ids, max_new_tokens=LIMIT, do_sample=False, pad_token_id=0)[0, ids.shape[1] :].tolist()
    run = played(wide, METHODS, prompt)
    assert {method: run.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


def test_a_prompt_with_an_id_that_the_target_lacks_is_refused(engine: Engine) -> None:
    with pytest.raises(PromptError, match=f"token {WIDTH} of the tokenizer, but target knows only {WIDTH} tokens;"):
        played(added(engine), ("ar",), f"{PROMPT}<{WIDTH}>")


def test_ids_that_the_draft_lacks_are_not_drafted(engine: Engine) -> None:
    methods = tuple(method for method in METHODS if method not in ("ar", "hf"))
    run = played(priced(engine, FREE), methods, temperature=1.0, auto=Auto(lookup=False))
    for method in methods:
        drafted = {token for event in run.rounds(method) for token in event.tokens[1:]}
        assert 0 <= min(drafted) <= max(drafted) < VOCABULARY, method


@pytest.mark.parametrize("verifier", VERIFIER_NAMES)
def test_a_lossless_verifier_draws_the_ids_that_the_draft_lacks(engine: Engine, verifier: str) -> None:
    own = Delayed(verifier, "delayed", *((1, 0, 3) if verifier == "block" else (2, 1, 2)))
    assert max(played(engine, ("delayed",), temperature=1.0, delayed=own).tokens("delayed")) >= VOCABULARY


@torch.inference_mode()
def test_the_assistant_of_hf_predicts_what_the_draft_does(engine: Engine) -> None:
    draft, text = engine.pair.draft_model, [5, WIDTH - 1, 7, VOCABULARY]
    form = fitted(draft, WIDTH)
    found = as_wide_as(draft, WIDTH)(torch.tensor([text])).logits[0, -1]
    torch.testing.assert_close(found, form.read(form.new_cache(8), text), rtol=1e-3, atol=1e-3)


def test_the_ids_that_a_draft_lacks_are_never_right(engine: Engine) -> None:
    tokens = [VOCABULARY, WIDTH - 1, VOCABULARY]
    text = ScoredText([5, VOCABULARY], tokens, 3, tokens, [1.0] * 3, Sampling())
    assert not scored(engine.pair, text).accepted[:, 0].any()


def test_features_of_a_selector_see_that_the_draft_lacks_ids(engine: Engine) -> None:
    text = [5, 6, VOCABULARY, 7]
    roots = TextRoots(engine.pair.observed(), Sampling(1.0), MOST, len(text), PhiloxGenerator(0))
    root = roots.advance(text)
    assert float(root.target_before[VOCABULARY:].sum()) > 0
    assert float(root.draft_before[VOCABULARY:].sum() + root.draft_at[VOCABULARY:].sum()) == 0
    assert scalars(root, 1.0, 1.0).isfinite().all()
    drawn = roots.drawn()
    assert drawn.draft_probs.shape == drawn.target_probs.shape


def test_a_draft_with_the_target_s_width_runs_as_it_is(tiny_models: TinyModels) -> None:
    draft = tiny_models.engine("neox").pair.draft_model
    assert fitted(draft, VOCABULARY) is draft
