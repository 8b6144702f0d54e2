"""Validates a recording's events and their sequence, and limits the memory that a hostile file can take."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

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
        if isinstance(event, Round):
            return _fault_of_round(event, lanes[event.method])
        return _unbounded(event) or (_no_knob(event.method, event.name) if isinstance(event, Knob) else "")


def _fault_of_run(run: Run) -> str:
    if not 1 <= len(run.methods) <= MOST_METHODS:
        return f"a run has {len(run.methods)} methods, but must have 1 to {MOST_METHODS}"
    if sum(1 for _ in leaves(run.methods)) > _MOST_PARAMETERS:
        return f"a run has more than {_MOST_PARAMETERS} parameters"
    return _unbounded(run)


def _fault_of_round(event: Round, lane: MethodTotals) -> str:
    """Description of the fault; if the round is valid, adds it to the method's totals and returns an empty text."""
    limit = event.limited_by
    fault = _out_of_turn(event, lane) or _off_the_tree(event) or _unbounded(event)
    if limit is not None and limit not in OTHER_LIMITS:
        fault = fault or _no_knob(event.method, limit)
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
    """Description of a fault of the tree; empty if there is none. Accepted nodes must form a path from the root, and
    the committed tokens must be a prefix of this path, or the whole path and one more token.
    """
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


_SECONDS = (0, _LARGEST)
_ANY = (-_LARGEST, _LARGEST)
_LOGPROBS = (-_LARGEST_FLOAT32, _ROUNDING)
_TIMES = ("t", "wall_s", "draft_s", "verify_s", "commit_s", "stalled_s", "waited_s", "energy")
_MODELS = ("target", "draft", "device", "dtype", "draft_dtype", "path", "version", "started_at", "verifier", "drafting")
_BOUNDS: Mapping[type[Event], Mapping[str, tuple[float, float]]] = {
    Run: {
        **dict.fromkeys(("temperature", "expected"), _SECONDS),
        **dict.fromkeys(("seed", "methods"), (-LARGEST, LARGEST)),
        "top_p": (0, 1),
    },
    Start: {"prefill_s": _SECONDS},
    Round: {**dict.fromkeys(_TIMES, _SECONDS), "knobs": _ANY, "logprobs": _LOGPROBS, "draft_logprobs": _LOGPROBS},
    Knob: {"old": _ANY, "new": _ANY},
    End: {"peak_bytes": (0, _LARGEST_FIGURE)},
    Summary: {"methods": (-_LARGEST_FIGURE, _LARGEST_FIGURE)},
}
"""Least and largest number that a field may contain, at any depth; other fields are limited by their type."""
_LONGEST: Mapping[type[Event], Mapping[str, int]] = {
    Run: {
        **dict.fromkeys((*_MODELS, "repeated_start", "ranks", "methods", "category"), LONGEST_NAME),
        "path_reason": LONGEST_TEXT,
        "prompt": LONGEST_PROMPT,
    },
    Round: {"text": LONGEST_TEXT, "pieces": LONGEST_PIECE, "limited_by": LONGEST_NAME},
    Knob: {"name": LONGEST_NAME},
    End: {"error": LONGEST_TEXT},
}
"""Most characters of a text in a field, at any depth."""
_MANY = ("ranks", "peak_bytes_by_rank")


def _unbounded(event: Event) -> str:
    """Description of the first number, text or list that no run would have written; empty if there is none."""
    content: dict[str, object] = msgspec.to_builtins(event)
    for name, (low, high) in _BOUNDS[type(event)].items():
        for value in leaves(content.get(name)):
            if isinstance(value, int | float) and not low <= value <= high:
                # The format `g` converts to a float, for which an integer may be too large.
                shown = shortened(value) if isinstance(value, int) else f"{value:g}"
                return f"{name} has {shown}, but must have {low:g} to {high:g}"
    for name, most in _LONGEST.get(type(event), {}).items():
        texts = (value for value in leaves(content.get(name)) if isinstance(value, str))
        if (length := max(map(len, texts), default=0)) > most:
            return f"{name} has {length} characters, but at most {most} are allowed"
    count = max(len(getattr(event, name, ())) for name in _MANY)
    return f"there are {count} processes, but at most {MOST_RANKS} are allowed" if count > MOST_RANKS else ""


def _no_knob(method: str, name: str) -> str:
    return f"{name[:LONGEST_NAME]} is no knob" if method in METHODS and name not in all_knobs() else ""
