"""The table of the settings that were tried, for the page "settings tried" and the exit summary."""

from collections.abc import Callable, Iterator
from functools import partial

from decoder.analysis.paired import LOOKS, Comparison
from decoder.run.config import RunConfig
from dynatui.knobs import info, owner, rules_of
from dynatui.number_format import short
from dynatui.record.command_line import rule_options
from dynatui.render.ink import Column, Sheet, column
from dynatui.render.words import written
from dynatui.state.ab_comparison import KnobSetting
from dynatui.state.session_log import SettingRow, SettingsTried

_LEAST_NAME, _LONGEST_NAME = 12, 40


def table(tried: SettingsTried, width: int) -> Iterator[str]:
    """Lines of the table, at most `width` cells wide; lines with options, which are to be copied, may be longer."""
    room = max(_LEAST_NAME, min(_LONGEST_NAME, width - sum(each.cells for each in _COLUMNS)))
    sheet = Sheet(_COLUMNS, width - room)
    yield f"settings of {tried.baseline.method} that were tried; A is {options(tried.baseline)}"
    yield column("", room) + sheet.heads
    for row in tried.rows:
        yield column(_differing(row.setting, tried.baseline), room) + sheet.row(row)
    if fastest := tried.fastest:
        yield f"fastest of those compared with A: {options(fastest)}"
    elif any(row.comparison for row in tried.rows):
        yield "none of those compared with A is clearly faster"


def options(setting: KnobSetting) -> str:
    """Command-line options of a setting; clips values that are out of bounds, as a recording may have them."""
    config, rules_name = RunConfig(), rules_of(setting.method)
    if rules_name is None:
        return ""
    for name, value in (*setting.knobs, *setting.knobs):  # twice, since bounds depend on knobs that are set later
        if config.rules(owner(name, rules_name)).has(name):
            config = config.turned(name, value, owner(name, rules_name))
    return " ".join(rule_options(config)) or f"the default values of {setting.method}"


def _differing(setting: KnobSetting, a: KnobSetting) -> str:
    """The knobs whose values differ from those of setting A; "A" for A itself."""
    known = dict(a.knobs)
    turned = (knob for knob in setting.knobs if known.get(knob[0]) != knob[1])
    own = ", ".join(f"{info(name).symbol} {written(info(name), value)}" for name, value in turned)
    return "A" if setting == a else own


def _verdict(row: SettingRow) -> str:
    if row.comparison:
        return row.comparison.verdict
    if row.measured:
        return f"{row.measured.blocks} of {LOOKS[0]} blocks"
    return "" if row.is_baseline else "not compared"


def _ratio(found: Comparison) -> str:
    return f"{short(found.rate.value)} ({short(found.rate.low)} to {short(found.rate.high)})"


def _if_compared(value: Callable[[Comparison], str], row: SettingRow) -> str:
    return value(row.comparison) if row.comparison else "-"


_COLUMNS: tuple[Column[SettingRow], ...] = (
    Column("L-bar", 7, lambda row: short(row.tokens_per_round), rank=2),
    Column("A's", 6, partial(_if_compared, lambda found: short(found.a.tokens / found.a.rounds)), rank=4),
    Column("tokens/s", 10, lambda row: short(row.tokens_per_second, 1), rank=1),
    Column("A's", 7, partial(_if_compared, lambda found: short(found.a.tokens / found.a.seconds, 1)), rank=3),
    Column("ratio, 99 %", 20, partial(_if_compared, _ratio)),
    Column("", 16, _verdict),
)
