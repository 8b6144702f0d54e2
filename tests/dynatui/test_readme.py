"""README and guides are true, links have targets, and continuous integration runs the documented commands."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import pytest

from decoder.analysis.metrics import FIGURES
from decoder.methods.dynatree import PRESETS
from dynatui import main as cli
from man.make import table_of_keys

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]
LINKED = [*PAGES, ROOT / "BENCHMARKS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "benchmarks").glob("*.md"))]
PROGRAMS = ("bash", "python")
"""Languages of code blocks that must run or say why not."""
SHORT_TEXT = {"DYNATUI_PROMPT": "The captain looked", "DYNATUI_MAX_NEW_TOKENS": "16"}
"""Settings for commands without a prompt; five long texts would show nothing more."""
TERMS = (
    *("acceptance length", "acceptance rate", "batch-invariant", "block efficiency", "CUDA graph", "EMA", "KV cache"),
    *("near tie", "prior", "speculative decoding", "suffix automaton", "tree attention", "warm-up"),
)
"""Terms that readers who know other engines search for."""


class Block(NamedTuple):
    page: str
    note: str
    language: str
    code: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r"(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)```", TEXTS[page], re.DOTALL)
    return [Block(page, *parts) for parts in found]


ALL = [block for page in TEXTS for block in blocks(page)]
PROGRAM_BLOCKS = [block for block in ALL if block.language in PROGRAMS]
QUICK_START = [block.code.strip() for block in PROGRAM_BLOCKS if block.code.startswith("python3.11 -m venv")]


def programs(page: str) -> list[tuple[str, str]]:
    """Language and code of what a page runs, in order: each line of bash, then all Python blocks as one program."""
    run = [block for block in blocks(page) if block.note == "run"]
    commands = [("bash", line) for block in run if block.language == "bash" for line in block.code.splitlines()]
    python = "\n".join(block.code for block in run if block.language == "python")
    return [*commands, ("python", python)] if python else commands


def between(page: str, beginning: str, end: str) -> list[str]:
    (found,) = re.findall(rf"<!-- {re.escape(beginning)} -->\n(.*?)<!-- {end} -->", TEXTS[page], re.DOTALL)
    return str(found).splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@cache
def ran(language: str, code: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a command; a command that occurs on several pages runs only once.

    Python and commands of dynatui run in this process, unless they start other processes. A line of bash without a
    prompt of its own decodes a short text.
    """
    lines = code.split(" && ") if language == "bash" else []
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        if lines and "--prompt" not in code:
            for name, value in SHORT_TEXT.items():
                patch.setenv(name, value)
        if all(line.startswith("dynatui ") and not {"|", ">"} & set(shlex.split(line)) for line in lines):
            said = TextIOWrapper(BytesIO(), "utf-8")
            with redirect_stdout(said), redirect_stderr(said):
                if language == "python":
                    Path("page.py").write_text(code, encoding="utf-8")
                    runpy.run_path("page.py")
                status = max((cli.main(shlex.split(line)[1:]) for line in lines), default=0)
            said.seek(0)
            return status, said.read()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        program = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


@pytest.mark.parametrize("block", PROGRAM_BLOCKS, ids=lambda block: f"{block.page}: {block.code.splitlines()[0]}")
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    assert re.fullmatch(r"run|not run: .{10,}", block.note)


@pytest.mark.parametrize("page", [page for page in TEXTS if programs(page)])
def test_what_a_page_runs_runs_in_its_order(page: str, folder: Path) -> None:
    for language, code in programs(page):
        status, said = ran(language, code, folder)
        assert status == 0, f"{code}\n{said}"


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "toml"], ids=lambda block: block.page)
def test_settings_that_a_page_shows_are_understood(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(block.code, encoding="utf-8")
    monkeypatch.setenv("DYNATUI_CONFIG", str(file))
    status = cli.main(["config"])
    assert status == 0, capsys.readouterr().err


def test_the_readme_is_short_with_a_quick_start_of_two_commands_and_leads_to_every_page() -> None:
    watch, test = QUICK_START
    assert "\n" not in watch + test
    assert (watch.endswith("/dynatui"), test.endswith("/pytest")) == (True, True)
    assert len(README.splitlines()) <= 100
    assert [page for page in TEXTS if page != "README.md" and f"](docs/{page})" not in README] == []
    benchmarks = (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    pages = [page.name for page in (ROOT / "benchmarks").glob("*.md")]
    assert [page for page in pages if f"](benchmarks/{page})" not in benchmarks] == []


@pytest.mark.parametrize("page", TEXTS)
def test_every_module_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`((?:decoder|dynatui|tests|benchmarks)/[\w/]+\.py)`", TEXTS[page])
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_every_term_of_the_field_is_found() -> None:
    text = " ".join(" ".join(TEXTS.values()).split())
    assert [term for term in TERMS if not re.search(rf"\b{re.escape(term)}s?\b", text, re.IGNORECASE)] == []


def test_continuous_integration_finds_the_test_command_in_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"grep -E '(.*?)'", script)
    found = subprocess.run(
        ["grep", "-E", pattern, "README.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert found == [QUICK_START[1]]


def test_the_table_of_keys_is_the_key_map() -> None:
    assert between("keys.md", "keys: from dynatui/keymap.py", "end of keys") == table_of_keys(), (
        "python -c 'from man.make import table_of_keys; print(*table_of_keys(), sep=chr(10))'"
    )


def test_the_keys_that_matter_are_rows_of_the_key_map_in_its_order() -> None:
    rows = re.findall(r"^\| (`.*`) \|[\w ]*\| (.*) \|$", "\n".join(table_of_keys()), re.MULTILINE)
    known = [f"| {caps} | {meaning} |" for caps, meaning in rows]
    _, _, *written = between("README.md", "some keys: from dynatui/keymap.py", "end of keys")
    assert written == sorted(written, key=known.index)
    assert len(written) >= 10


def test_the_table_of_figures_is_that_of_the_metrics() -> None:
    _, _, *written = between("reading-the-screen.md", "figures: from decoder/analysis/metrics.py", "end of figures")
    assert written == [f"| {one.label} | `{one.key}` | {one.formula} | {one.elsewhere} |" for one in FIGURES]


def test_the_table_of_presets_holds_their_values() -> None:
    _, _, *rows = between("tuning.md", "presets: from decoder/methods/dynatree.py", "end of presets")
    written = [[cell.strip("` ") for cell in row.split("|")[1:5]] for row in rows]
    turnable = [f"--{field.name.replace('_', '-')}" for field in fields(PRESETS["tuned"])]
    assert {option for option, *_ in written} < set(turnable)
    for option, *values in written:
        name = option.removeprefix("--").replace("-", "_")
        assert values == [in_words(getattr(PRESETS[preset], name)) for preset in PRESETS], option


def in_words(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case tuple():
            return ",".join(map(str, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_into_the_repository_leads_to_a_file_and_its_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    for link in (link for link in links if "://" not in link):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        assert target.is_file(), link
        assert not heading or heading in headings(target), link


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


SCRIPT = ROOT / ".ci" / "run"
STEPS = re.findall(r'^ *step "(\.venv/bin/.*?)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
"""Commands of the virtual environment that the script runs, besides the README's test command."""
CHECKS = [step for step in STEPS if "pytest" not in step]


def values(file: str, key: str) -> list[str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return [value.strip('"') for value in re.findall(rf"^[ -]*{key}: (.*)$", text, re.MULTILINE)]


def test_the_script_can_be_started_and_lints_formats_checks_types_and_tests() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    assert "set -euo pipefail" in SCRIPT.read_text(encoding="utf-8")
    assert [step.split()[0] for step in CHECKS] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    steps = [line for line in SCRIPT.read_text(encoding="utf-8").splitlines() if line.startswith("step ")]
    assert (steps[0], *steps[-2:]) == (
        'step "${command% && *}"',
        'step "${command##* && }"',
        'step ".venv/bin/pytest -m slow"',
    )


def test_hooks_and_hosted_integration_run_the_same_with_the_python_of_the_test_command() -> None:
    assert values(".pre-commit-config.yaml", "entry") == CHECKS
    assert set(values(".pre-commit-config.yaml", "language")) == {"system"}
    assert values(".github/workflows/ci.yml", "run") == [".ci/run"]
    (version,) = values(".github/workflows/ci.yml", "python-version")
    assert f"\npython{version} -m venv" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_contributors_are_told_the_steps_of_the_script() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [step for step in STEPS if not re.search(rf"^{re.escape(step)}(?= |$)", guide, re.MULTILINE)] == []
