"""Whatever is wrong with a command line is one line on standard error and exit code 2, before anything is loaded."""

from pathlib import Path

import pytest

from dynatui.record.recording import Recorder
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine

ALONE = "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier in the text"
NEEDY = (
    "alg1 cannot run without a draft model (suffix lookup and drafting heads are not draft models); "
    "leave alg1 out of --methods, or name a model with --draft"
)
SPEED = "give 0.001 to 1"
LINES = (
    ("--nope", "No such option: --nope"),
    ("dance", "No such command 'dance'"),
    ("--prompt", "requires an argument"),
    ("--d0 deep", "Invalid value for '--d0'"),
    ("--d0 12", "D0 is 12; give 1 to 7"),
    ("--tau-h nan", "tau_h is nan; give 0 < tau_l < tau_h <= 1"),
    ("--tau-h 0.02", "tau_l is 0.2 and tau_h is 0.02"),
    ("--rho-stop 0.9", "rho_stop is 0.9"),
    ("--branching 1,2", "give 3 whole numbers, for example 1,2,3"),
    ("--branching 1,2,x", "give 3 whole numbers, for example 1,2,3"),
    ("--branching 3,2,1", "give three ascending numbers, each 1 or more"),
    ("--fixed 5", "give depth and branching, and optionally the least path probability and the"),
    ("--fixed 5,2,x", "for example 5,2 or 5,2,0.05,256"),
    ("--fixed 5,2,7", "the fixed tree's tau is 7; give 0 to 1"),
    ("--k 0", "K is 0; give 1 or more"),
    (
        "--auto n_max=9",
        "--auto has 'n_max=9', which names no knob of auto; give knobs and values such as d0=6; the knobs are ",
    ),
    ("--auto d0", "--auto has 'd0'; give d0 as a number"),
    ("--auto d_max=2.5", "--auto has 'd_max=2.5'; give d_max as a whole number"),
    ("--auto history=maybe", "--auto has 'history=maybe'; give history=on or history=off"),
    ("--auto d0=99", "D0 is 99; give 1 to 11 (D_max - 1)"),
    ("--auto b_max=1", "branching is 1,2,1; give three ascending numbers, each 1 or more"),
    ("--n-max 0", "n_max is 0; give 1 or more"),
    ("--n-max some", "--n-max is 'some'; give a whole number from 1 up"),
    ("--n-max auto --headless", "--n-max is 'auto'; auto is a method: --methods auto"),
    ("--n-max -3", "n_max is -3; give"),
    ("--temperature -1", "temperature is -1; give 0 (greedy) to 2"),
    ("--temperature nan", "temperature is nan; give 0 (greedy) to 2"),
    ("--temperature inf", "temperature is inf; give 0 (greedy) to 2"),
    ("--temperature 3", "temperature is 3; give 0 (greedy) to 2"),
    ("--temperature warm", "Invalid value for '--temperature'"),
    ("--top-p 0", "top_p is 0; give more than 0 and at most 1 (all tokens)"),
    ("--top-p 1.5", "top_p is 1.5; give more than 0 and at most 1 (all tokens)"),
    ("--top-p nan", "top_p is nan; give more than 0"),
    ("--top-k -1", "top_k is -1; give 1 or more, or 0 for all tokens"),
    ("--methods dance,ar", "no method dance; choose from dynatree"),
    ("--methods ar,ar", "methods contains ar more than once"),
    ("--max-new-tokens 0", "max_new_tokens is 0"),
    ("--seed -1", "Invalid value for '--seed'"),
    ("--preset mine", "give one of tuned, paper"),
    ("--selection all", "give bfs or best"),
    ("--symbols runes", "Invalid value for '--symbols'"),
    ("--speed 0", f"--speed is '0'; {SPEED}"),
    ("--speed nan", f"--speed is 'nan'; {SPEED}"),
    ("--speed 2/1", f"--speed is '2/1'; {SPEED}"),
    ("--speed 1/0", "--speed is '1/0'; give a number, or a fraction such as 1/2"),
    ("--speed fast", "--speed is 'fast'; give a number, or a fraction such as 1/2"),
    ("--fps 0", "Invalid value for '--fps'"),
    ("--prompt-file nowhere.txt", "cannot read nowhere.txt"),
    ("--prompt-file \x1b[2J", "cannot read ␛[2J"),
    ("--record .", "cannot write ."),
    *((f"--headless --metrics-port {port}", "--metrics-port") for port in ("-1", "65536", 10**20, "http", "9.5", "")),
    ("replay", "Missing argument 'FILE'"),
    ("replay x --k 3", "No such option: --k; see dynatui replay --help"),
    ("replay nowhere.jsonl", "cannot read nowhere.jsonl"),
    ("replay a b c", "unexpected extra argument"),
    ("--json replay nowhere.jsonl", "--json is given before replay"),
    ("--json config", "--json is given before config"),
    ("--target x doctor", "--target is given before doctor"),
    ("--follow nowhere.jsonl", "nowhere.jsonl: No such file or directory"),
    ("--follow x --target y", "--target has no effect beside --follow"),
    ("--follow x --prompt y", "--prompt has no effect beside --follow"),
    ("--follow x --record y", "--record has no effect beside --follow"),
    ("--follow x --no-history", "--history has no effect beside --follow"),
    ("--follow x --metrics-port 0", "--metrics-port has no effect beside --follow"),
    ("--target x", ALONE),
    ("--draft x", "a draft model needs its target; give both --target and --draft, omit both, or"),
    ("--draft lookup --methods ar,alg1", NEEDY),
    ("--draft lookup --drafting iid --verifier traversal", "delayed cannot run without a draft model"),
    ("bench speed --target x", ALONE),
    ("bench speed --draft lookup --methods alg1", NEEDY),
    ("bench speed --draft lookup --hostile", "--hostile needs a draft model, but --draft lookup"),
    ("bench speed --draft lookup --context 9", "a measurement of rounds needs a draft model"),
    ("bench paper --draft lookup --output out", "dynatui bench paper needs a draft model"),
    ("bench sampling --draft lookup --output out", "dynatui bench sampling needs a draft model"),
    ("tune --target x", ALONE),
    ("tune --target x --drafts lookup", "--drafts ranks draft models, and lookup is not a model"),
    ("attach", "URL"),
    ("attach http://me:hunter2@host:8000", "which ends a user name or password"),
    ("attach ftp://host", "give http or https"),
    ("attach host:8000 --interval 0", "--interval is 0.0; give 0.1 to 3600 seconds"),
    ("attach host:8000 --interval nan", "--interval is nan"),
    ("attach host:8000 --polls 0", "--polls"),
    ("attach host:8000 --prompt ", "the prompt is empty"),
    ("attach host:8000 --record /", "cannot write /"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("line", "said"), LINES)
def test_what_is_wrong_is_one_line_and_exit_code_2(line: str, said: str, refused: Refused, engine: FakeEngine) -> None:
    told = refused(*line.split(" "))
    assert said in told
    assert "hunter2" not in told
    assert not engine.pairs


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--compile", "--compile needs a draft model"),
        ("--draft-dtype bfloat16", "--draft-dtype has no effect without"),
    ],
)
def test_what_has_no_effect_on_lookups_is_refused_by_the_engine(line: str, said: str, refused: Refused) -> None:
    assert refused("--headless", "--draft", "lookup", *line.split()).startswith(said)


def test_a_recording_that_another_process_writes_is_refused(engine: FakeEngine, refused: Refused) -> None:
    with Recorder(Path("run.jsonl")):
        told = refused("--headless", "--prompt", "x", "--metrics-port", "0", "--record", "run.jsonl")
    assert told == "another process is writing run.jsonl; give --record another file"
    assert engine.pairs == []


def test_a_token_that_cannot_be_sent_is_refused_unshown(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setenv("DYNATUI_ATTACH_TOKEN", "two words")
    told = refused("attach", "host:8000")
    assert "DYNATUI_ATTACH_TOKEN" in told
    assert "two words" not in told
