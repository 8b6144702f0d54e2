"""Tests of the command `dynatui bench speed`: refusals, printed output and written files."""

import json
import shlex
from pathlib import Path

import pytest

from dynatui.lab.commands import bench, bench_options
from dynatui.main import command, main
from man.make import PAGE
from tests import tiny
from tests.lab.commands.refusals import refused

ON_CPU, ONLY_CUDA = "--device cpu", "--compile is for CUDA, but the device is cpu; leave --compile out"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyPair:
    return tiny.kindred_pair("neox", tmp_path_factory.mktemp("pair"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--shapes x", "--shapes is 'x'; give target and draft, for example pythia-2.8b:pythia-70m"),
        ("--shapes a:b --target x", "--target has no effect beside --shapes; leave --target out"),
        ("--shapes a:b --linear 2", "--linear has no effect beside --shapes; leave --linear out"),
        ("--shapes a:b --hostile", "--hostile has no effect beside --shapes; leave --hostile out"),
        ("--shapes a:b --tau-h 0.5", "--tau-h has no effect beside --shapes; leave --tau-h out"),
        ("--context 9 --prompt x", "--prompt has no effect beside --context; leave --prompt out"),
        ("--context 9 --no-baselines", "--baselines has no effect beside --context; leave --baselines out"),
        ("--context 9 --llama-cpp x", "--llama-cpp has no effect beside --context; leave --llama-cpp out"),
        ("--context 9 --prompt-chars 2", "--prompt-chars has no effect beside --context; leave --prompt-chars out"),
        ("--context 9 --preset paper", "--preset has no effect beside --context; leave --preset out"),
        ("--context 9,x", "--context is '9,x'; give values such as 256, with commas between them"),
        ("--context ''", "--context is ''; give values such as 256, with commas between them"),
        ("--context 9,0", "--context is '9,0'; give lengths from 1 up"),
        ("--context 9 --trees 2x2 --device cpu", "no tree has 2 levels in 2 rows"),
        ("--trees 1x2", "--trees has no effect without --context or --shapes; leave --trees out"),
        ("--llama-cpp none.gguf", "there is no file none.gguf; give the path of a GGUF file on this machine"),
        ("--linear 1,x", "--linear is '1,x'; give values such as 5, with commas between them"),
        ("--linear 0", "K is 0; give 1 or more"),
        (f"--linear {'9' * 20}", f"--linear is '{'9' * 20}'; give no number above 1048576"),
        ("--methods ar --linear 2", "--linear has no effect where linear is not measured; leave --linear out"),
        ("--methods dynatree --fixed 2x2", "--fixed has no effect where fixed is not measured; leave --fixed out"),
        ("--fixed 2,2", "--fixed is '2,2'; give values such as 5x2, with commas between them"),
        ("--fixed 2x0", "the fixed tree's branching is 0; give 1 or more"),
        ("--methods hf", "hf is measured by --baselines, under the name assisted; leave hf out of --methods"),
        ("--methods ar,zz", "there is no method zz; choose from "),
        ("--preset paper,zz", "--preset is 'zz'; give one of "),
        ("--json /nonesuch/x", "cannot write /nonesuch/x: No such file or directory; set --json to another"),
        ("--prompt ' ' --prompt-chars 3", "a prompt contains only blanks; give a prompt with words"),
        (f"--compile {ON_CPU}", f"{ONLY_CUDA}, or give --device cuda"),
        (f"--compile {ON_CPU} --hostile", ONLY_CUDA),
        (f"--compile {ON_CPU} --context 9", ONLY_CUDA),
        (f"--compile {ON_CPU} --shapes pythia-2.8b:pythia-70m", ONLY_CUDA),
        ("--compile --exact", "--compile has no effect beside --exact, whose passes are not compiled; leave out"),
        ("--compile --exact --context 9", "--compile has no effect beside --exact"),
        ("--compile --exact --shapes pythia-2.8b:pythia-70m", "--compile has no effect beside --exact"),
        ("--repeats 0", "Invalid value for '--repeats'"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "bench", "speed", *shlex.split(arguments)).startswith(line)


def models(pair: tiny.TinyPair) -> list[str]:
    return ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]


def test_bench_alone_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert capsys.readouterr().err == "dynatui: Missing command; see dynatui bench --help\n"


def test_help_names_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "speed", "--help"]) == 0
    text = capsys.readouterr().out
    speed = command().commands["bench"].commands["speed"]  # type: ignore[attr-defined]
    assert len(speed.params) > 25
    assert all(option.opts[0] in text for option in speed.params)


def test_the_manual_page_describes_the_command_within_the_command() -> None:
    page = PAGE.read_text(encoding="ascii")
    assert r".SS dynatui bench speed" in page
    assert r"\fB\-\-prompt\-chars\fR" in page


def test_a_measurement_prints_tables_and_adds_a_line_to_the_file(
    pair: tiny.TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "speed.jsonl"
    prompts = ["--prompt", "  The tree grows where the draft is sure", "--prompt-chars", "14"]
    size = shlex.split("--max-new-tokens 6 --repeats 1 --linear 2,3 --fixed 2x2 --no-baselines --preset paper --d0 2")
    arguments = ["bench", "speed", *models(pair), *prompts, *size, "--draft-dtype", "bfloat16", "--json", str(kept)]
    for _ in range(2):
        assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "tokens/s" in captured.out
    assert "dynatree over linear (" in captured.out
    assert "on cpu in float32, draft bfloat16" in captured.out
    assert "10 of 10 turns" in captured.err
    first, second = map(json.loads, kept.read_text().splitlines())
    names = [row["name"] for row in second["rows"]]
    trees = ["dynatree", "auto", "linear 2", "linear 3", "fixed 2x2", "bestfirst 8x5", "delayed"]
    assert names == ["ar", *trees, "streaming 4x1020x5", "alg1"]
    assert first["setup"]["contenders"]["dynatree"]["d0"] == 2
    assert first["texts"] == second["texts"]
    tokenizer = tiny.train_tokenizer()
    assert first["setup"]["prompts"] == [tokenizer("The tree grows").input_ids]


def test_random_weights_are_measured_by_their_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}
    path.write_text(json.dumps({"model_type": "gpt_neox", "vocab_size": 288, "max_position_embeddings": 64} | shape))
    sizes = ["--trees", "1x2,2x4", "--context", "8", "--max-new-tokens", "3", "--repeats", "1", "--device", "cpu"]
    assert main(["bench", "speed", "--shapes", f"{path}:{path}", *sizes, "--dtype", "float32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("ar ", "1x2", "2x4"))] == ["ar", "1x2", "2x4"] * 3


def test_rounds_of_loaded_models_are_measured_after_texts_of_several_lengths(
    pair: tiny.TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "rounds.jsonl"
    sizes = ["--context", "8,40,24", "--trees", "1x2,2x4", "--repeats", "1", "--json", str(kept)]
    assert main(["bench", "speed", *models(pair), *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("After")] == [
        f"After {length} random tokens, with a draft that guesses at random:" for length in (8, 40, 24)
    ]
    assert "Growth relative to 8 tokens:" in lines
    report = json.loads(kept.read_text())
    assert [(row["name"], row["context"]) for row in report["growth"]] == [
        (name, length) for name in ("ar", "1x2", "2x4") for length in (40, 24)
    ]
    assert report["setup"]["max_new_tokens"] == bench.ROUNDS
    assert [len(prompt) for prompt in report["setup"]["prompts"]] == [8, 40, 24]


def test_a_hostile_draft_is_measured_on_texts(
    pair: tiny.TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "hostile.jsonl"
    small = ["--prompt", "The tree grows", "--max-new-tokens", "20", "--repeats", "1", "--no-baselines"]
    for extra in ([], ["--hostile"]):
        assert main(["bench", "speed", *models(pair), *small, "--methods", "linear", "--json", str(kept), *extra]) == 0
    kind, hostile = map(json.loads, kept.read_text().splitlines())
    assert kind["texts"] == hostile["texts"]
    assert kind["rows"][1]["tokens_per_round"] > 1.3
    assert hostile["rows"][1]["tokens_per_round"] < 1.2
    assert "(random head)" in capsys.readouterr().out


def test_settings_for_the_live_race_do_not_choose_what_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DYNATUI_METHODS", "hf,ar")
    monkeypatch.setenv("DYNATUI_FIXED", "4,4")
    assert main(["bench", "speed", "--linear", "x"]) == 2
    assert "--linear is 'x'" in capsys.readouterr().err


def test_the_prompt_that_does_not_fit_is_named(pair: tiny.TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "speed", *models(pair), "--prompt", "a", "--prompt", "b" * 400, "--max-new-tokens", "5"]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("dynatui: prompt 2 of 2: the prompt has ")


def test_every_method_but_the_threaded_baseline_is_measured_by_default() -> None:
    assert bench_options.all_methods().startswith("dynatree,auto,ar,linear,fixed")
    assert "hf" not in bench_options.all_methods().split(",")
