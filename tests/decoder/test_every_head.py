"""Properties of every kind of drafting head: its command line, its rows in the cache, and rounds without a tree."""

import json
from pathlib import Path

import pytest

from decoder import DynaTree
from decoder.draft.head_passes import Eagle3Passes
from decoder.draft.model_drafter import ModelDrafter
from dynatui.main import main
from tests import dflash_checkpoints as dflash
from tests import eagle3_checkpoints as eagle3
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.makers import TinyModels, host_session, with_pair

PROMPT = "A small model guesses; "
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=60)
EAGLE3, DFLASH = eagle3.name("llama", "flat"), dflash.name("llama", "z-lab")


@pytest.mark.parametrize(
    "pair",
    [eagle3.name("neox", "nested"), dflash.name("qwen3", "speculators, DSpark"), mtp.name("qwen3_5_text")],
)
def test_the_command_line_decodes_with_a_head(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path, pair: str
) -> None:
    saved, kept = tiny_models.pair(pair), tmp_path / "run.jsonl"
    draft = "mtp" if pair == mtp.name("qwen3_5_text") else str(saved.draft)
    models = ["--target", str(saved.target), "--draft", draft, "--device", "cpu", "--dtype", "float32"]
    asked = ["--prompt", "The tree grows", "--max-new-tokens", "24", "--headless", "--record", str(kept)]
    assert main([*models, *asked, "--methods", "ar,linear,fixed,bestfirst,dynatree,auto"]) == 0
    summary = json.loads(kept.read_text().splitlines()[-1])
    assert all(figures["identical_to_ar"] in (True, None) for figures in summary["methods"].values())
    assert summary["methods"]["fixed"]["drafted"] > 0
    capsys.readouterr()
    assert main(["replay", str(kept), "--headless"]) == 0
    capsys.readouterr()
    assert main([*models, *asked[:-2], "--methods", "ar,hf"]) == 2
    assert "hf cannot run without a draft model" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("pair", [EAGLE3, DFLASH])
def test_rounds_without_a_tree_leave_nothing_out(tiny_models: TinyModels, pair: str) -> None:
    """In the last rounds, the context has no room for a tree level."""
    engine = tiny_models.loaded(tiny_models.pair(pair), "float32")
    prompt = tiny_models.prompt_tokens(tiny_models.pair(pair), PROMPT)
    texts = []
    for rules in (BUSHY, None):
        session = host_session(with_pair(engine, context=len(prompt) + 6), prompt, 6, rules)
        session.prefill()
        while not session.step(()).finished:
            pass
        texts.append(session.text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("pair", [EAGLE3, *map(mtp.name, mtp.FAMILIES)])
def test_no_cache_row_of_a_tree_is_kept(tiny_models: TinyModels, pair: str) -> None:
    saved = tiny_models.pair(pair)
    session = host_session(tiny_models.loaded(saved, "float32"), tiny_models.prompt_tokens(saved, PROMPT), 40, BUSHY)
    session.prefill()
    for _ in range(4):
        session.step(())
        assert isinstance(session.proposer, ModelDrafter)
        passes = session.proposer.passes
        assert isinstance(passes, Eagle3Passes)
        assert passes.cache.used == passes.cache.length
        assert passes.behind(session.text) == sum(len(rows) for rows in passes.unread)
