"""The manual page is up to date with the command line, and groff can format it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dynatui.cli import settings
from dynatui.keymap import GROUPS
from dynatui.main import command
from man.make import PAGE, _text, page

ROOT = Path(__file__).parents[3]


def shown() -> str:
    """The page as a reader sees it, on one line and without hyphenation."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-rHY=0", "-rLL=500n"],
        input=page().encode("ascii"),
        capture_output=True,
        check=True,
    )
    return " ".join(done.stdout.decode().split())


needs_groff = pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")


def test_the_page_is_current_escaped_and_installed_where_man_looks() -> None:
    assert PAGE.read_text(encoding="ascii") == page(), "python man/make.py writes it anew"
    assert _text(".SH \\fB'`~^\"-τ") == r"\&.SH \efB\(aq\(ga\(ti\(ha\(dq\-\[u03C4]"
    assert '"man/dynatui.1" = "share/man/man1/dynatui.1"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_program_writes_the_page(tmp_path: Path) -> None:
    code = f"import man.make as m; from pathlib import Path; m.PAGE = Path({str(tmp_path / 'p.1')!r}); m.main()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "p.1").read_text(encoding="ascii") == page()


@needs_groff
def test_groff_has_nothing_to_complain_about() -> None:
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", PAGE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_groff
def test_options_with_their_defaults_commands_and_keys_are_shown() -> None:
    text = shown()
    live = command()
    for key, option in settings.options_of(live).items():
        assert f"--{key.replace('_', '-')}" in text
        assert " ".join(str(option.help).split()) in text
    assert all(f"dynatui {name}" in text for name in live.commands)
    text = shown()
    assert "--tau-h P The draft is confident if its best guess is at least this probable. Default: 0.3." in text
    assert "--seed S Seed of everything that is random. Default: 0." in text
    assert "Default: dynatree,auto,ar,linear,fixed." in text
    assert re.search(r"--history, --no-history [^.]*\. Default: --no-history\.", text)
    assert "Without either option, only conversations are wrapped" in text
    text = shown()
    assert all(" ".join(key.help.split()) in text for group in GROUPS for key in group.keys)
