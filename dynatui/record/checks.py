"""Validates a recording's events and their sequence, and limits the memory that a hostile file can take."""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import assert_never

from msgspec import structs

from decoder.errors import RecordingError, shortened
from decoder.events import OTHER_LIMITS, End, Event, Knob, Round, Run, Start, Summary, Upgrade, decode_line
from decoder.json_values import LARGEST, leaves
from decoder.methods import METHODS, all_knobs, root_is_drafted
from decoder.run.text_end import TextEnds
from dynatui.clean import clean_line
from dynatui.servers.attach.events import is_opening

MOST_METHODS = 64
MOST_RANKS = 2**12
MOST_NODES = 2**16
LONGEST_PROMPT = 2**22
LONGEST_TEXT = 2**20
"""Maximum number of characters in the text of a round, in an error message, and in `path_reason`."""
LONGEST_PIECE = 2**12
LONGEST_NAME = 2**10
_LARGEST = 1e9
"""Largest time in seconds and largest knob value; sums and squares of such values stay finite."""
_LARGEST_FLOAT32 = 1e39
"""Larger than every float32; log-probabilities are computed in float32."""
_LARGEST_FIGURE = 1e15
_MOST_PARAMETERS = 2**12
"""Maximum number of names and values in the parameters of all methods of a run, at all levels of nesting."""
_SHORTEST_S = 1e-9
_ROUNDING = 1e-3


@dataclass
class MethodTotals:
    rounds: int = 0
    tokens: int = 0
    t: float = 0.0


def other_form(beginning: bytes) -> str:
    """Why a file with this beginning is unreadable (compressed, other encoding), with a remedy; empty for UTF-8."""
    return next((remedy for mark, remedy in _OTHER_FORMS.items() if beginning.startswith(mark)), "")


_ICONV = "it is {0} text; convert it with iconv -f {0} -t UTF-8"
_OTHER_FORMS = {
    b"\x1f\x8b": "it is compressed; unpack it with gunzip",
    b"\x28\xb5\x2f\xfd": "it is compressed; unpack it with zstd -d",
    b"\xfd7zXZ": "it is compressed; unpack it with unxz",
    b"BZh": "it is compressed; unpack it with bunzip2",
    b"PK\x03\x04": "it is compressed; unpack it with unzip",
    b"\xef\xbb\xbf": "it begins with a byte order mark; remove it with sed -i '1s/^\\xEF\\xBB\\xBF//'",
    codecs.BOM_UTF32_LE: _ICONV.format("UTF-32"),
    codecs.BOM_UTF32_BE: _ICONV.format("UTF-32"),
    codecs.BOM_UTF16_LE: _ICONV.format("UTF-16"),
    codecs.BOM_UTF16_BE: _ICONV.format("UTF-16"),
    b"{\x00": _ICONV.format("UTF-16LE"),
    b"\x00{": _ICONV.format("UTF-16BE"),
}


class Checker:
    """Decodes and checks the lines of one recording in order."""

    def __init__(self) -> None:
        self._lanes: dict[str, MethodTotals] | None = None
        self._upgrade, self._text_ends = Upgrade(), TextEnds()

    def event(self, line: bytes, number: int) -> Event:
        """Decodes a line to an event of the current schema; raises RecordingError if invalid or out of sequence."""
        if self._lanes is None and is_opening(line):
            remedy = "show it with dynatui replay FILE"
            raise RecordingError(f"line {number} begins a recording of a server, which cannot be read here; {remedy}")
        if self._lanes is None and (form := other_form(line)):
            raise RecordingError(f"line {number}: {form}")
        event = self._upgrade.event(decode_line(line, number))
        if isinstance(event, Run):
            fault = _fault_of_run(event)
            self._lanes = {name: MethodTotals() for name in event.methods} if not fault else None
        elif self._lanes is None:
            raise RecordingError(f"line {number}: an event comes before any run; the beginning of the file is missing")
        else:
            fault = self._fault(event, self._lanes)
        if fault:
            raise RecordingError(f"line {number}: {fault}; give a recording that --record has written")
        return self._text_ends.event(event)

    def _fault(self, event: Start | Round | Knob | End | Summary, lanes: dict[str, MethodTotals]) -> str:
        named = event.methods if isinstance(event, Summary) else (event.method,)
        stranger = next((name for name in named if name not in lanes), None)
        if stranger is not None:
            return f"{clean_line(stranger[:LONGEST_NAME])} is not a method of this run"
        match event:
            case Round():
                return _fault_of_round(event, lanes[event.method])
            case Summary():
                values = chain.from_iterable(map(structs.astuple, event.methods.values()))
                figures = (value for value in values if not isinstance(value, str))
                unbounded = _beyond("a figure", figures, -_LARGEST_FIGURE, _LARGEST_FIGURE)
                return _too_many(event.peak_bytes_by_rank) or unbounded
            case Start():
                return _beyond("prefill_s", (event.prefill_s,), 0, _LARGEST)
            case Knob(name=name):
                return _no_knob(event.method, name) or _beyond(name, (event.old, event.new), -_LARGEST, _LARGEST)
            case End():
                too_long = _too_long("error", event.error or "", LONGEST_TEXT)
                return _beyond("peak_bytes", (event.peak_bytes,), 0, _LARGEST_FIGURE) or too_long
            case _:
                assert_never(event)


def _fault_of_run(run: Run) -> str:
    if not 1 <= len(run.methods) <= MOST_METHODS:
        return f"a run has {len(run.methods)} methods, but must have 1 to {MOST_METHODS}"
    of_models = run.target, run.draft, run.device, run.dtype, run.draft_dtype, run.path, run.version, run.started_at
    names = *of_models, run.verifier, run.drafting, run.repeated_start or "", *run.methods, *run.ranks
    return (
        _beyond("temperature", (run.temperature,), 0, _LARGEST)
        or _beyond("top_p", (run.top_p,), 0, 1)
        or _beyond("seed", (run.seed,), -LARGEST, LARGEST)
        or _beyond("a time", structs.astuple(run.expected) if run.expected else (), 0, _LARGEST)
        or _too_long("a name", max(names, key=len), LONGEST_NAME)
        or _too_many(run.ranks)
        or _too_long("path_reason", run.path_reason, LONGEST_TEXT)
        or _too_long("prompt", run.prompt, LONGEST_PROMPT)
        or _too_long("category", run.category or "", LONGEST_NAME)
        or _fault_of_parameters(run.methods)
    )


def _fault_of_parameters(methods: Mapping[str, Mapping[str, object]]) -> str:
    for number, value in enumerate(leaves(methods)):
        if number >= _MOST_PARAMETERS:
            return f"a run has more than {_MOST_PARAMETERS} parameters"
        if isinstance(value, int | float) and (fault := _beyond("a parameter", (value,), -LARGEST, LARGEST)):
            return fault
        if isinstance(value, str) and (fault := _too_long("a parameter", value, LONGEST_NAME)):
            return fault
    return ""


def _fault_of_round(event: Round, lane: MethodTotals) -> str:
    """Description of the fault; if the round is valid, adds it to the method's totals and returns an empty text."""
    fault = _out_of_turn(event, lane) or _off_the_tree(event) or _unbounded(event)
    if not fault:
        lane.rounds, lane.tokens, lane.t = event.round + 1, event.position + len(event.committed), event.t
    return fault


def _out_of_turn(event: Round, lane: MethodTotals) -> str:
    if event.round != lane.rounds:
        return f"{event.method} has round {event.round} where round {lane.rounds} is expected"
    name = f"round {event.round} of {event.method}"
    if event.position != lane.tokens:
        return f"{name} has position {event.position}, but the rounds before it have {lane.tokens} tokens"
    if event.t < lane.t or 0 < event.t < _SHORTEST_S:
        return f"{name} ends at t = {event.t:g}, but began at t = {lane.t:g}"
    return ""


def _off_the_tree(event: Round) -> str:
    """Accepted nodes must be a path from the root, committed tokens a prefix of it or the whole path and one token."""
    if len(event.tokens) > MOST_NODES:
        return f"a tree has {len(event.tokens)} nodes, but at most {MOST_NODES} are allowed"
    above = -1 if root_is_drafted(event.method) else 0
    for node in event.accepted:
        if event.parents[node] != above:
            return "the accepted nodes do not form a path from the root"
        above = node
    if event.draft_forwards is None:
        return ""  # the method does not report its drafts, so its committed tokens cannot be checked
    path = [event.tokens[node] for node in event.accepted]
    if len(event.committed) > len(path) + 1 or event.committed[: len(path)] != path[: len(event.committed)]:
        return "the committed tokens are not the accepted tokens and one more token"
    return ""


def _unbounded(event: Round) -> str:
    limit = event.limited_by
    seconds = (event.t, event.wall_s, event.draft_s, event.verify_s, event.commit_s, event.stalled_s, event.waited_s)
    knobs = structs.astuple(event.knobs) if event.knobs else ()
    return (
        _beyond("a time", seconds, 0, _LARGEST)
        or _beyond("a knob", knobs, -_LARGEST, _LARGEST)
        or _beyond("an energy", (event.energy.joules,) if event.energy else (), 0, _LARGEST)
        or _beyond("a log-probability", (*event.logprobs, *event.draft_logprobs), -_LARGEST_FLOAT32, _ROUNDING)
        or _too_long("text", event.text, LONGEST_TEXT)
        or _too_long("a piece", max(event.pieces, key=len), LONGEST_PIECE)
        or (_no_knob(event.method, limit) if limit is not None and limit not in OTHER_LIMITS else "")
    )


def _no_knob(method: str, name: str) -> str:
    if method in METHODS and name not in all_knobs():
        return f"{name[:LONGEST_NAME]} is no knob"
    return _too_long("a name", name, LONGEST_NAME)


def _too_many(ranks: Sequence[object]) -> str:
    return f"there are {len(ranks)} processes, but at most {MOST_RANKS} are allowed" if len(ranks) > MOST_RANKS else ""


def _beyond(name: str, values: Iterable[float | None], low: float, high: float) -> str:
    wrong = next((value for value in values if value is not None and not low <= value <= high), None)
    if wrong is None:
        return ""
    # The format `g` converts to a float, for which an integer may be too large.
    return f"{name} is {shortened(wrong) if isinstance(wrong, int) else f'{wrong:g}'}, but must be {low:g} to {high:g}"


def _too_long(name: str, text: str, limit: int) -> str:
    return f"{name} has {len(text)} characters, but at most {limit} are allowed" if len(text) > limit else ""
