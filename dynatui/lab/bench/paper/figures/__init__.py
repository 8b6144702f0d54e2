"""The paper's figures, drawn from measurements made here, and written as files; no file is left incomplete.

`catalogue` names all figures. `marks` determines the appearance, and every other module draws a few related figures.
matplotlib is an optional extra, so it is imported only when figures are drawn.
"""

from pathlib import Path

from decoder.errors import ConfigError, first_line
from decoder.system.whole_files import made_folder, write_whole
from dynatui.lab.bench.paper.report import PaperReport


def draw(report: PaperReport, folder: Path) -> list[Path]:
    """Draws every figure for which the report has data, as PNG and SVG; returns the paths of the files."""
    try:
        from dynatui.lab.bench.paper.figures.catalogue import pictures  # noqa: PLC0415 - imports matplotlib
    except ImportError as error:
        raise ConfigError(
            f"figures cannot be drawn without matplotlib ({first_line(error)}); run pip install 'dynatui[bench]'"
        ) from error
    paths = []
    for name, content in pictures(report):
        paths.append(made_folder(folder) / name)
        write_whole(paths[-1], content)
    return paths
