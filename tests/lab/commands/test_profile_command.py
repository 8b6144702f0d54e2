"""Tests of the command `dynatui profile`: printed output, the written file, interruptions and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from decoder.models.pair import Pair
from dynatui.cli.headless import INTERRUPTED
from dynatui.lab.tuning import profiling
from dynatui.lab.tuning.scoring import ScoredText, scored
from dynatui.lab.tuning.survival import ScoredPlaces
from dynatui.main import main
from dynatui.servers.profile_file import Profile, read_profile
from tests import tiny
from tests.decoder import other_tokenizers

TEXTS = ("The tree grows", "A small model", "Nothing is lost")
SHORT = ("--max-new-tokens", "12", "--device", "cpu", "--dtype", "float32")


@pytest.fixture
def small(models: list[str]) -> str:
    """The draft of the tiny pair."""
    return models[3]


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "logs.jsonl"
    records = [{"prompt": text, "category": "odd" if index % 2 else "even"} for index, text in enumerate(TEXTS)]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


@pytest.fixture
def arguments(models: list[str], small: str, prompts: str, tmp_path: Path) -> list[str]:
    given = [*models[:2], "--drafts", f"{small},lookup", "--prompt-file", prompts]
    return ["profile", *given, *SHORT, "--output", str(tmp_path / "mine.json")]


def kept(folder: Path) -> Profile:
    return read_profile(folder / "mine.json")


def test_every_draft_has_rates_by_category_and_by_context(
    arguments: list[str], small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    found = kept(tmp_path)
    assert (found.prompts, found.tokens, found.answers, found.temperature) == (3, 36, 0, 0)
    assert list(found.drafts) == [small, "lookup"]
    draft, lookup = found.drafts.values()
    assert (draft.kind, lookup.kind, draft.longest) == ("model", "lookup", 16)
    assert set(draft.by_category) == {"even", "odd"}
    assert draft.rounds == pytest.approx(sum(group.rounds for group in draft.by_category.values()))
    assert set(draft.by_context) == {"<1k"}
    assert len(draft.intervals) == 16
    assert (draft.probabilistic, lookup.probabilistic, lookup.size, lookup.trees) == (None, None, None, None)
    assert draft.confidence[0].survival == pytest.approx(draft.survival)
    assert lookup.drafted[0] < 1
    assert found.costs
    assert (found.costs.source, set(found.costs.draft_s)) == ("measured", {small})
    assert found.size.weights_bytes == draft.size.weights_bytes  # type: ignore[union-attr]  # kin have one shape
    printed = capsys.readouterr()
    assert "L(3)" in printed.out
    assert "  odd" in printed.out
    assert not (tmp_path / "mine.json.log").exists()


def test_sampled_profiles_have_both_rules(arguments: list[str], tmp_path: Path) -> None:
    assert main([*arguments, "--temperature", "1", "--top-k", "20"]) == 0
    draft, lookup = kept(tmp_path).drafts.values()
    assert draft.probabilistic
    assert draft.probabilistic.survival[0] > draft.survival[-1]
    assert lookup.probabilistic is None
    assert (kept(tmp_path).temperature, kept(tmp_path).top_k, kept(tmp_path).top_p) == (1, 20, None)


def interrupting(after: int) -> Callable[[Pair, ScoredText], ScoredPlaces]:
    """Scoring that is interrupted after so many scored texts."""
    asked = list[ScoredText]()

    def score(pair: Pair, text: ScoredText) -> ScoredPlaces:
        asked.append(text)
        if len(asked) > after:
            raise KeyboardInterrupt
        return scored(pair, text)

    return score


def test_an_interrupted_profile_holds_the_prompts_so_far_and_goes_on_with_the_same_options(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    whole = structs.replace(kept(tmp_path), costs=None)
    with monkeypatch.context() as patch:
        patch.setattr(profiling, "scored", interrupting(3))
        assert main(arguments) == INTERRUPTED
    assert kept(tmp_path).prompts == 1
    assert "the same command goes on" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "--seed", "3"]) == 2
    assert "was started with other values of seed" in capsys.readouterr().err
    assert main(arguments) == 0
    assert structs.replace(kept(tmp_path), costs=None) == whole


def test_answers_are_scored_without_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tiny.kindred_pair("neox", tmp_path)
    tokenizer = tiny.train_tokenizer()
    tokenizer.chat_template = "{% for each in messages %}{{ each['content'] }}|{% endfor %}"
    tokenizer.save_pretrained(pair.target)
    path = tmp_path / "logs.jsonl"
    turns = [{"role": "user", "content": "Once"}, {"role": "assistant", "content": "the tree grows where it is sure"}]
    path.write_text(json.dumps({"messages": turns, "tag": "chat"}), encoding="utf-8")
    monkeypatch.setattr(profiling, "written", None)
    given = ["--target", str(pair.target), "--drafts", str(pair.draft), "--prompt-file", str(path), "--chat"]
    assert main(["profile", *given, *SHORT, "--output", str(tmp_path / "mine.json")]) == 0
    assert (kept(tmp_path).answers, kept(tmp_path).prompts) == (1, 1)
    assert set(kept(tmp_path).drafts[str(pair.draft)].by_category) == {"chat"}


def test_the_embedded_pair_is_profiled_on_its_own_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--max-new-tokens", "24", "--output", str(tmp_path / "mine.json")]
    assert main(["profile", *given]) == 0
    (draft,) = kept(tmp_path).drafts.values()
    assert kept(tmp_path).prompts == 5
    assert 0.2 < draft.survival[0] < 0.95
    assert "books-1m" in capsys.readouterr().out


def test_given_costs_and_a_roofline_say_so(arguments: list[str], small: str, tmp_path: Path) -> None:
    assert main([*arguments, "--step-ms", "37.5", "--draft-ms", "26"]) == 0
    given = kept(tmp_path).costs
    assert given
    assert (given.source, given.target_s, given.draft_s) == ("given", {1: 0.0375}, {small: 0.026})
    assert main([*arguments, "--roofline", "L4"]) == 0
    roofline = kept(tmp_path).costs
    assert roofline
    assert (roofline.source, roofline.device, roofline.bytes_per_s) == ("roofline", "L4", 300e9)
    assert roofline.target_s[1] > 0


def test_what_cannot_be_profiled_is_named_and_counted(
    arguments: list[str], small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafts = arguments.index("--drafts") + 1
    other = tiny.save(tmp_path / "other", tiny.build(tiny.FAMILIES["neox"](), 5), other_tokenizers.byte_level())
    arguments[drafts] += f",/nowhere,{other}"
    assert main([*arguments, "--prompt", "word " * 400]) == 0
    found = kept(tmp_path)
    assert (list(found.drafts), len(found.draft_errors)) == ([small, "lookup"], 2)
    assert (found.prompts, found.left_out) == (3, 1)
    assert "1 prompt left out" in capsys.readouterr().err


def test_a_profile_that_cannot_begin_leaves_no_file(tmp_path: Path) -> None:
    given = ["--target", "/nowhere", "--output", str(tmp_path / "mine.json")]
    assert main(["profile", *given, "--prompt", "x"]) == 3
    assert list(tmp_path.iterdir()) == []
