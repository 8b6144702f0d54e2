"""A command of the laboratory that cannot be met is one line, with what to do instead."""

import shlex
from pathlib import Path

import pytest

from tests.dynatui.cli.fake_screen import Refused

ON_CPU, ONLY_CUDA = "--device cpu", "--compile is for CUDA, but the device is cpu; leave --compile out"
SPEED = [
    ("--shapes x", "--shapes is 'x'; give target and draft, for example pythia-2.8b:pythia-70m"),
    ("--shapes a:b --target x", "--target has no effect beside --shapes; leave --target out"),
    ("--shapes a:b --gpu-layers 2", "--gpu-layers has no effect beside --shapes; leave --gpu-layers out"),
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
    ("--methods ar,zz", "there is no method 'zz'; choose from "),
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
]
SAMPLING = [
    ("--temperatures warm", "--temperatures is 'warm'; give numbers with commas between them"),
    ("--temperatures -1", "temperature is -1; give 0 (greedy) to 2"),
    ("--temperatures 0", "at temperature 0, all verifiers decode greedily and so do not differ; give values above 0"),
    ("--temperatures '' --top-p ''", "no temperature was given; give --temperatures or --top-p"),
    ("--top-p 0", "top_p is 0; give more than 0 and at most 1 (all tokens)"),
    ("--verifiers naive,best", "--verifiers names best; choose from nss, "),
    ("--verifiers ''", "--verifiers names none; choose from nss, "),
    ("--k 0", "--k is 0; give 1 to 8"),
    ("--length 0", "--length is 0; give 1 to 16"),
    ("--max-new-tokens 0", "--max-new-tokens is 0; give 1 or more"),
    ("--roots-every 0", "--roots-every is 0; give 1 or more"),
    ("--decoded -1", "--decoded is -1; give 0 or more"),
    ("--prompt x --selector /nonesuch", "there is no selector /nonesuch; make one with dynatui"),
    ("--data /nonesuch", "cannot read /nonesuch/spec_bench/question.jsonl: No such file or directory; set"),
    ("--prompt x --tasks math", "--tasks has no effect beside prompts; leave --tasks out"),
    ("--prompt x --data /nonesuch", "--data has no effect beside prompts; leave --data out"),
    ("--target x", "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier"),
    ("--json /nonesuch/x", "cannot write /nonesuch/x: No such file or directory; set --json to another"),
]
SWEEP = [
    ("", "the argument SPACE is missing; give one of thresholds, breadth, depth, fixed"),
    ("wide", "there is no space 'wide'; choose from thresholds, breadth, depth, fixed"),
    ("fixed --axis tau", "--axis is 'tau'; give NAME=V,V,.., for example T=100,200"),
    ("fixed --axis tau_h=.9", "the space fixed has no axis 'tau_h'; choose from D, B, tau, T"),
    ("fixed --axis D=deep", "the axis D is 'deep', which is invalid; give whole numbers"),
    ("fixed --axis D=0", "the fixed tree's depth is 0; give 1 or more"),
    ("fixed --preset paper", "--preset has no effect on fixed; leave it out"),
    ("depth --preset mine", "--preset is 'mine'; give one of tuned, paper, sampled"),
    ("thresholds --axis tau_h=7 --axis tau_l=.2", "tau_l is 0.2 and tau_h is 7"),
    ("depth --axis T=0", "max_new_tokens is 0; give 1 or more"),
    ("fixed --shard 2", "--shard is '2'; give I/N, for example 1/3"),
    ("fixed --shard 3/2", "--shard is 3/2; give I/N with I from 1 to N"),
    ("fixed --shard 0/1", "--shard is 0/1; give I/N with I from 1 to N"),
    ("fixed --shard 1/1001", "--shard is 1/1001; give I/N with I from 1 to N"),
    ("fixed --output /proc/nonesuch", "cannot write /proc/nonesuch: No such file or directory; name another folder"),
    ("fixed --show", "space has no effect beside --show; leave space out"),
    ("--show --seed 1", "--seed has no effect beside --show; leave --seed out"),
    ("--show --output /nonesuch", "/nonesuch holds no sweep; run a sweep first, or set --output"),
    ("fixed --json /nonesuch/x", "cannot write /nonesuch/x: No such file or directory; set --json to"),
]
SELECTOR = [
    ("collect --data x --prompt a", "1 prompts are too few to train and evaluate; give 5 or"),
    ("collect --data x --temperatures a", "--temperatures is 'a'; give a number, or several with"),
    ("collect --data x --temperatures 3", "temperature is 3; give 0 (greedy) to 2"),
    ("collect --data x --top-ps 0", "top_p is 0; give more than 0 and at most 1"),
    ("collect --data x --verifiers best", "roots cannot be labelled for verifier 'best'; choose from nss"),
    ("collect", "Missing option '--data'"),
    ("train --data /nonesuch --out x", "/nonesuch holds no collection: No such file or directory"),
    ("eval --data x --selector /nonesuch", "there is no selector /nonesuch; make one with dynatui"),
]
MISSING = "cannot use the database sqlite:////nonesuch/x.db: unable to open database file; check that its folder exists"
TUNE = [
    ("--name a/b", "--name is 'a/b'; give up to 64 letters, digits, - and _, for example mine"),
    ("--name tuned", "--name is tuned, a preset that comes with dynatui; give another name"),
    ("--minutes 0", "--minutes is 0; give more than 0 and at most 1440 (one day)"),
    ("--minutes nan", "--minutes is nan; give more than 0 and at most 1440 (one day)"),
    ("--minutes inf", "--minutes is inf; give more than 0 and at most 1440 (one day)"),
    ("--minutes soon", "Invalid value for '--minutes': 'soon' is not a valid float"),
    ("--max-new-tokens 0", "Invalid value for '--max-new-tokens': 0 is not in the range x>=1"),
    ("--target x", "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier"),
    ("--storage sqlite:////nonesuch/x.db --target /nonesuch --draft /nonesuch", MISSING),
]
PROFILE = [
    ("", "Missing option '--output'"),
    ("--output x --drafts lookup", "--drafts are those of a target; give --target too"),
    ("--output x --draft-ms 5", "--draft-ms has no effect without --step-ms; give both"),
    ("--output x --draft-ms soon", "--draft-ms is 'soon'; give milliseconds such as 37.7"),
    ("--output x --draft-ms -1", "--draft-ms is '-1'; give milliseconds such as 37.7"),
    ("--output x --step-ms 0 --draft-ms 1", "--step-ms is '0'; give one time above 0 in milliseconds"),
    ("--output x --target t --drafts a,b --step-ms 5", "--step-ms needs --draft-ms with 2 times, one for each of a, b"),
    ("--output x --step-ms 5 --draft-ms 1 --roofline L4", "--step-ms and --roofline both give the costs; leave one"),
    ("--output x --roofline abacus", "--roofline is 'abacus'; give B200, "),
    ("--output x --prompt-file /nonesuch", "cannot read /nonesuch: No such file or directory"),
    ("--output x --temperature 3", "temperature is 3; give 0 (greedy) to 2"),
    ("--output /nonesuch/x", "cannot write /nonesuch/x.log: No such file or directory; set --output to another file"),
]
BENCH = [("", "Missing command; see dynatui bench --help")]
COMMANDS = {"bench": BENCH, "bench speed": SPEED, "bench sampling": SAMPLING, "bench sweep": SWEEP}
COMMANDS |= {"selector": SELECTOR, "tune": TUNE, "profile": PROFILE}
ROWS = [(f"{command} {given}", line) for command, rows in COMMANDS.items() for given, line in rows]


@pytest.mark.parametrize(("given", "line"), ROWS, ids=[given for given, _ in ROWS])
def test_a_request_that_cannot_be_met_is_one_line(
    given: str, line: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    assert refused(*shlex.split(given)).startswith(line)
