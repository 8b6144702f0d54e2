"""Tests of the installed program in its own process, on tiny models: pipes, signals and full disks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from decoder.events import End, Round, Summary
from dynatui.main import main
from dynatui.record.reader import read_events
from tests.tiny import TinyPair, kindred_pair

PROGRAM = str(Path(sys.executable).with_name("dynatui"))
SIX_METHODS = "dynatree,ar,linear,fixed,alg1,hf"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return kindred_pair("neox", tmp_path_factory.mktemp("pair"))


@pytest.fixture
def base(pair: TinyPair) -> list[str]:
    """Command line of the program on the tiny pair."""
    models = ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]
    return [PROGRAM, "--headless", "--max-new-tokens", "24", *models]


@pytest.fixture
def environment() -> dict[str, str]:
    """Environment with one thread and a locale without UTF-8."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("methods", ["dynatree,ar", pytest.param(SIX_METHODS, marks=pytest.mark.soak)])
def test_a_piped_run_is_json_whose_methods_agree_and_its_replay_is_the_same(
    base: list[str], environment: dict[str, str], tmp_path: Path, methods: str
) -> None:
    path = tmp_path / "run.jsonl"
    asked = [*base, "--json", "--methods", methods, "--record", str(path), "--prompt-file", "-"]
    live = subprocess.run(
        asked, input="The tree — grows\n".encode(), env=environment, cwd=tmp_path, capture_output=True, check=True
    )
    result = json.loads(live.stdout)
    assert result["prompt"] == "The tree — grows"
    assert list(result["methods"]) == methods.split(",")
    assert all(figures["identical_to_ar"] for figures in result["methods"].values())
    assert {len(figures["tokens"]) for figures in result["methods"].values()} == {24}
    again = subprocess.run(
        [PROGRAM, "replay", "--json", str(path)], env=environment, cwd=tmp_path, capture_output=True, check=True
    )
    assert again.stdout == live.stdout


def test_ctrl_c_leaves_the_text_so_far_and_a_whole_recording(
    base: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    asked = [*base, "--methods", "ar", "--speed", "0.005", "--record", str(path), "--prompt", "The tree"]
    with subprocess.Popen(
        [sys.executable, "-c", HEEDING_SIGINT, *asked],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as running:
        assert running.stdout is not None
        first = running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        rest, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert said.decode().endswith("interrupted\n")
    assert "Traceback" not in said.decode()
    *_, end, summary = events = read_events(path)
    assert isinstance(end, End)
    assert end.reason == "stopped"
    assert isinstance(summary, Summary)
    text = "".join(event.text for event in events if isinstance(event, Round))
    assert (first + rest).decode() == text + "\n"


HEEDING_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Restores SIGINT's default: tests in the background ignore SIGINT, and their child processes would inherit that."""


def test_a_reader_that_leaves_is_no_error(base: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    asked = [*base, "--methods", "ar", "--speed", "0.05", "--record", str(path), "--prompt", "The tree"]
    with subprocess.Popen(
        asked, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as running:
        assert running.stdout is not None
        running.stdout.read(1)
        running.stdout.close()
        _, said = running.communicate(timeout=120)
    assert running.returncode == 0
    assert "dynatui:" not in said.decode()
    assert "Exception" not in said.decode()
    assert read_events(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(recorded: Path, environment: dict[str, str], tmp_path: Path) -> None:
    asked = [PROGRAM, "replay", "--headless", str(recorded)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(asked, env=environment, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("dynatui: cannot write to standard output: No space left on device")
    assert "Traceback" not in done.stderr.decode()


def test_closed_standard_streams_are_no_reason_to_fail(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"'{PROGRAM}' --nope <&- >&- 2>&-; echo $?"], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout == b"2\n"


@pytest.mark.parametrize("arguments", ["--help", "config", "--version"])
def test_nobody_reading_is_no_error(arguments: str, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [PROGRAM, *arguments.split()], cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [["--headless", "--prompt", "x"], ["bench", "speed", "--context", "8"]])
def test_without_a_folder_for_temporary_files_it_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    limited = 'ulimit -f 0; exec "$0" "$@" 2>&1'  # no file can be written in any folder
    asked = ["sh", "-c", limited, PROGRAM, *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
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
sys.exit(main())
"""
"""The program; `{act}` interrupts it when the import of module `{moment}` begins."""


@pytest.mark.parametrize("moment", ["dynatui.main", "decoder.events", "torch"])
def test_ctrl_c_is_quiet_however_early_it_comes(moment: str, tmp_path: Path) -> None:
    code = INTERRUPTED.format(moment=moment, act="os.kill(os.getpid(), signal.SIGINT)")
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("moment", ["typer", "torch"])
def test_ctrl_c_counts_even_where_python_would_swallow_it(moment: str, tmp_path: Path) -> None:
    asked = [sys.executable, "-c", INTERRUPTED.format(moment=moment, act="Interruption()")]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (130, "")


def test_an_interruption_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    code = (
        INTERRUPTED.format(moment="typer", act="Interruption()")
        .replace("default_int_handler", "SIG_IGN")
        .replace("--headless", "--version")
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("dynatui ")


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
