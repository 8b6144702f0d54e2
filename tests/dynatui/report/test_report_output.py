"""A page is written atomically, is readable only by its owner, and never replaces other files."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.report.inputs import require_free, write_report


def refusal(path: Path, *, force: bool = False) -> str:
    before = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    with pytest.raises(ConfigError) as caught:
        write_report("page", path, force=force)
    assert before == (sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else [])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_page_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    write_report("päge", tmp_path / "a.html", force=False)
    assert (tmp_path / "a.html").read_bytes() == "päge".encode()
    assert stat.S_IMODE((tmp_path / "a.html").stat().st_mode) == 0o600
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_there_stays_unless_force_is_given(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("old")
    assert "exists already" in refusal(page)
    assert page.read_text() == "old"
    write_report("new", page, force=True)
    assert page.read_text() == "new"


def test_a_page_that_others_may_read_stays_readable(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("old")
    page.chmod(0o644)
    write_report("new", page, force=True)
    assert (page.read_text(), stat.S_IMODE(page.stat().st_mode)) == ("new", 0o644)


def test_what_is_in_the_way_shows_before_the_page_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file that a page could replace"):
        require_free(tmp_path, force=True)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nothing")])
def test_only_a_file_is_ever_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "there"
    make(path)
    assert "not a file that a page could replace" in refusal(path, force=True)


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(ConfigError, match="not a file that a page could replace"):
        write_report("page", Path(os.devnull), force=True)


def test_a_link_stays_a_link_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("old")
    (tmp_path / "link").symlink_to("a.html")
    write_report("new", tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.html").read_text() == "new"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "nowhere" / "a.html")


def test_a_folder_that_may_not_be_written_is_refused() -> None:
    assert "cannot write /proc/a.html" in refusal(Path("/proc/a.html"))


@pytest.mark.parametrize("old", [None, "old"])
def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str | None) -> None:
    page = tmp_path / "a.html"
    if old:
        page.write_text(old)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refusal(page, force=True)
    assert page.exists() == bool(old)


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report("page", tmp_path / "a.html", force=False)
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert "File name too long" in refusal(tmp_path / f"{'a' * 300}.html")
