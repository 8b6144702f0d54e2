"""The paper's figures are written as files."""

import errno
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from decoder.errors import ConfigError
from dynatui.lab.bench.paper.figures import draw
from tests.lab.bench.paper.reports import paper_report, request

WHOLE = paper_report(request(prompts=2))
SMALL = replace(WHOLE, cells=[cell for cell in WHOLE.cells if cell.experiment == "prompt_length"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return draw(SMALL, tmp_path_factory.mktemp("drawn") / "figures")


def test_every_figure_of_which_cells_were_measured_is_a_png_and_an_svg(small: list[Path]) -> None:
    assert [file.name for file in small] == [f"prompt_length_sensitivity.{kind}" for kind in ("png", "svg")]
    for file in small:
        assert file.read_bytes().startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
    assert sorted(small[0].parent.iterdir()) == sorted(small)


@pytest.fixture
def _no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "dynatui.lab.bench.paper.figures"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("_no_matplotlib")
def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path) -> None:
    line = r"^figures cannot be drawn without matplotlib \(.+\); run pip install 'dynatui\[bench\]'$"
    with pytest.raises(ConfigError, match=line):
        draw(SMALL, tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^cannot write .*file/figures: Not a directory; name another"):
        draw(SMALL, tmp_path / "file" / "figures")


def test_on_a_full_disk_files_are_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if ".svg" in path.name:
            write(path, content[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    (tmp_path / "prompt_length_sensitivity.svg").touch()
    with pytest.raises(ConfigError, match="No space left on device"):
        draw(SMALL, tmp_path)
    assert {path.name: path.stat().st_size > 10 for path in tmp_path.iterdir()} == {
        "prompt_length_sensitivity.png": True,
        "prompt_length_sensitivity.svg": False,
    }


def test_the_same_report_gives_the_same_bytes_whatever_a_user_has_set(small: list[Path], tmp_path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - only this test needs it

    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        changed = [file.read_bytes() for file in draw(SMALL, tmp_path)]
        assert mpl.rcParams["font.size"] == 30
    assert changed == [file.read_bytes() for file in small]
