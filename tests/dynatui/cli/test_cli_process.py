"""Tests of the program in its own process: pipes, signals, full disks, and a soon end though nobody reads."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from decoder.events import End, Round, Summary
from dynatui import files
from dynatui.main import main
from dynatui.record.reader import read_events
from tests.dynatui.fake_engine import story
from tests.dynatui.pty_terminal import written
from tests.tiny import TinyPair, kindred_pair

ROOT = Path(__file__).parents[3]
PROGRAM = str(Path(sys.executable).with_name("dynatui"))
SIX_METHODS = "dynatree,ar,linear,fixed,alg1,hf"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return kindred_pair("neox", tmp_path_factory.mktemp("pair"))


@pytest.fixture
def base(pair: TinyPair) -> list[str]:
    models = ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]
    return [PROGRAM, "--headless", "--max-new-tokens", "24", *models]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs programs in an empty folder, with one thread and a locale without UTF-8."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }.items():
        monkeypatch.setenv(name, value)


def ran(*command: str, check: bool = False, **how: Any) -> "subprocess.CompletedProcess[str]":
    streams: dict[str, Any] = {} if "stdout" in how else {"capture_output": True}
    return subprocess.run(command, check=check, text=True, encoding="utf-8", **streams, **how)


@pytest.mark.parametrize("methods", ["dynatree,ar", pytest.param(SIX_METHODS, marks=pytest.mark.soak)])
def test_a_piped_run_is_json_whose_methods_agree_and_its_replay_is_the_same(base: list[str], methods: str) -> None:
    asked = [*base, "--json", "--methods", methods, "--record", "run.jsonl", "--prompt-file", "-"]
    live = ran(*asked, input="The tree — grows\n", check=True).stdout
    result = json.loads(live)
    assert result["prompt"] == "The tree — grows"
    assert list(result["methods"]) == methods.split(",")
    assert all(figures["identical_to_ar"] for figures in result["methods"].values())
    assert {len(figures["tokens"]) for figures in result["methods"].values()} == {24}
    assert ran(PROGRAM, "replay", "--json", "run.jsonl", check=True).stdout == live


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(recorded: Path) -> None:
    done = ran("sh", "-c", f"'{PROGRAM}' replay --headless {recorded} > /dev/full")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("dynatui: cannot write to standard output: No space left on device")
    assert "Traceback" not in done.stderr


def test_closed_standard_streams_are_no_reason_to_fail() -> None:
    assert ran("sh", "-c", f"'{PROGRAM}' --nope <&- >&- 2>&-; echo $?").stdout == "2\n"


@pytest.mark.parametrize("arguments", ["--help", "config"])
def test_nobody_reading_is_no_error(arguments: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = ran(PROGRAM, *arguments.split(), capture_output=False, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--headless", "--prompt", "x"], ["bench", "speed", "--context", "8"]])
def test_without_a_folder_for_temporary_files_it_is_one_line(arguments: list[str]) -> None:
    limited = 'ulimit -f 0; exec "$0" "$@" 2>&1'  # no file can be written in any folder
    done = ran("sh", "-c", limited, PROGRAM, *arguments, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    why = "cannot import what decoding needs: no folder for temporary files is writable"
    assert (done.returncode, done.stdout) == (3, f"dynatui: {why}; set TMPDIR to a writable folder\n")


INTERRUPTED = """
import os, signal, sys

class Interruption:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{moment}":
            {act}

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["dynatui", "--headless", "--prompt", "The tree"]
from dynatui.__main__ import main
{models}
sys.exit(main())
"""
"""The program; `{act}` interrupts it when the import of module `{moment}` begins."""
LOADING = """
import decoder
from tests.dynatui.fake_engine import FakeEngine
class Engine(FakeEngine):
    def load_pair(self, *given, **further):
        import tabnanny
        return super().load_pair(*given, **further)
vars(decoder).update(load_pair=Engine().load_pair, decode=Engine().decode)
"""
"""Models that load at once, but import a module meanwhile."""


@pytest.mark.parametrize("moment", ["dynatui.main", "decoder.events", "torch"])
def test_ctrl_c_is_quiet_however_early_it_comes(moment: str) -> None:
    code = INTERRUPTED.format(moment=moment, act="os.kill(os.getpid(), signal.SIGINT)", models="")
    done = ran(sys.executable, "-c", code, timeout=120)
    assert (done.returncode, done.stdout) == (130, "")
    assert not re.search("Traceback|Exception", done.stderr)


@pytest.mark.parametrize(("moment", "models"), [("click", ""), ("tabnanny", LOADING)], ids=["start", "load"])
def test_ctrl_c_counts_even_where_python_would_swallow_it(moment: str, models: str) -> None:
    code = INTERRUPTED.format(moment=moment, act="Interruption()", models=models)
    done = ran(sys.executable, "-c", code, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout.strip()) == (130, "")


def test_an_interruption_that_is_ignored_stays_ignored() -> None:
    code = INTERRUPTED.format(moment="click", act="Interruption()", models="")
    done = ran(sys.executable, "-c", code.replace("default_int_handler", "SIG_IGN").replace("--headless", "--version"))
    assert (done.returncode, done.stdout[:8]) == (0, "dynatui ")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ([], "dynatui: --compile is for CUDA, but the device is cpu; leave --compile out, or give --device cuda\n"),
        (
            ["--exact"],
            "dynatui: --compile has no effect beside --exact, whose passes are not compiled; leave out --compile or "
            "--exact\n",
        ),
    ],
    ids=["cpu", "exact"],
)
def test_what_cannot_be_compiled_is_refused_in_one_line(
    base: list[str], more: list[str], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Runs in the tests' process, although it loads models."""
    _, *asked = base
    assert main([*asked, "--prompt", "x", "--compile", *more]) == 2
    assert capfd.readouterr() == ("", line)


FAKED = """
import sys
import decoder
from dynatui.main import main
from tests.dynatui.fake_engine import FakeEngine
engine = FakeEngine()
vars(decoder).update(load_pair=engine.load_pair, decode=engine.decode)
code = main(sys.argv[1:])
print(engine.prompts)
sys.exit(code)
"""
"""The program with a fake engine; prints the prompts that the engine received."""


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    """Runs a line of bash in which `dynatui` is the program with a fake engine."""
    function = 'dynatui() { "$PYTHON" -c "$FAKED" "$@"; }; '
    own = {"PYTHON": sys.executable, "FAKED": FAKED, "PYTHONPATH": str(ROOT)}
    return ran("bash", "-c", function + line, env={**os.environ, **own}, timeout=30)


@pytest.mark.parametrize(
    "arguments",
    [
        *("replay pipe --headless", "replay pipe --json", "--headless --prompt-file pipe.jsonl", "--follow pipe"),
        "DYNATUI_CONFIG",
    ],
)
def test_a_pipe_without_a_writer_ends_in_one_line(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(name)
    if arguments == "DYNATUI_CONFIG":
        monkeypatch.setenv("DYNATUI_CONFIG", "pipe")
        arguments = "--headless --prompt x"
    assert main(arguments.split()) == 2
    assert re.fullmatch(r"dynatui: cannot .*pipe.*\n", capsys.readouterr().err)


LATE = "<(sleep 0.5; echo three)"
FOUR = (
    f"echo one | dynatui --headless --prompt-file - --prompt-file <(echo two) --prompt-file {LATE} --prompt-file pipe"
)


@pytest.mark.parametrize(
    ("line", "prompts"),
    [
        (f"mkfifo pipe; (sleep 1; echo four > pipe) & {FOUR}", ["one", "two", "three", "four"]),
        ("echo one > file; dynatui --headless --prompt-file /dev/stdin < file", ["one"]),
    ],
)
def test_pipes_and_standard_input_are_prompts_in_their_order(line: str, prompts: list[str]) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, str(prompts))


def test_a_recording_comes_through_a_pipe_too() -> None:
    written(Path("run.jsonl"), story())
    done = shell("dynatui replay --headless <(sleep 0.5; cat run.jsonl)")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Once upon a time")


SOON_S = 3.0
FULL_S = 0.3
"""Time after which a pipe that is not read is full."""
ENDLESS = """
import signal, sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
import decoder
from msgspec import structs
from decoder.events import Round
from dynatui.main import main
from tests.dynatui.endless_engine import EndlessEngine
signal.signal(signal.SIGINT, signal.default_int_handler)
record, size, pause_s = sys.argv[1:]
numbers = count()
def long(event):
    if next(numbers) == 50:
        Path("decoding").touch()
    return structs.replace(event, text="x" * int(size)) if isinstance(event, Round) else event
def decode(pair, prompt, config, steering):
    return EndlessEngine(pause_s=float(pause_s), foreign=long).decode(prompt, config, steering)
vars(decoder).update(load_pair=lambda **_: SimpleNamespace(prepare=str), decode=decode)
sys.exit(main(["--headless", "--prompt", "x", "--record", record]))
"""
"""The program with an endless engine. Tests in the background ignore SIGINT, so its default is restored."""


def endless(record: str, size: int, pause_s: float, output: int, folder: str = ".") -> "subprocess.Popen[bytes]":
    """Starts the program with an engine that writes `size` characters a round, with a pause between rounds."""
    command = [sys.executable, "-c", ENDLESS, record, str(size), str(pause_s)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, bufsize=0)


def test_ctrl_c_leaves_the_text_so_far_and_a_whole_recording_and_a_reader_that_leaves_is_no_error() -> None:
    with (
        endless("run.jsonl", 3, 0.01, subprocess.PIPE) as running,
        endless("b.jsonl", 3, 0.01, subprocess.PIPE) as left,
    ):
        assert running.stdout is not None
        assert left.stdout is not None
        first = running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        rest, said = running.communicate(timeout=120)
        left.stdout.read(1)
        left.stdout.close()
        _, nothing = left.communicate(timeout=120)
    assert (running.returncode, left.returncode) == (130, 0)
    assert said.decode().endswith("interrupted\n")
    assert "Traceback" not in said.decode()
    *_, end, summary = events = read_events(Path("run.jsonl"))
    assert isinstance(end, End)
    assert end.reason == "stopped"
    assert isinstance(summary, Summary)
    watched = (event for event in events if isinstance(event, Round) and event.method == "dynatree")
    assert (first + rest).decode() == "".join(event.text for event in watched) + "\n"
    assert not re.search("dynatui:|Exception", nothing.decode())
    assert read_events(Path("b.jsonl"))


def test_a_signal_ends_a_run_soon_though_nobody_reads_its_output_or_its_recording() -> None:
    """Each run has its folder; once all of them decode, each must end soon after its signal, as interrupted."""
    signals = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM)
    for number in signals:
        Path(number.name).mkdir()
    os.mkfifo("SIGTERM/run.jsonl")
    unread = os.open("SIGTERM/run.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    with ExitStack() as started:
        runs = dict[signal.Signals, subprocess.Popen[bytes]]()
        for number in signals:
            output = subprocess.DEVNULL if number == signal.SIGTERM else subprocess.PIPE
            runs[number] = started.enter_context(endless("run.jsonl", 1000, 0.0, output, number.name))
            started.callback(runs[number].kill)
        for number, running in runs.items():
            while not Path(number.name, "decoding").exists():
                assert running.poll() is None
                time.sleep(0.02)
        time.sleep(FULL_S)
        for number, running in runs.items():
            assert running.poll() is None
            began = time.monotonic()
            running.send_signal(number)
            assert (running.wait(15), time.monotonic() - began < SOON_S) == (130, True)
            assert running.stderr is not None
            assert not re.search("Traceback|Exception", running.stderr.read().decode())
    os.close(unread)
    assert all(read_events(Path(number.name, "run.jsonl")) for number in signals[:3])
