"""`dynatui attach`: watches an inference server on a screen or as JSON lines; also replays recordings of servers."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from decoder.errors import ConfigError, quoted, require, shortened
from decoder.events import encode
from dynatui.cli import options, request, settings
from dynatui.cli.headless import INTERRUPTED
from dynatui.cli.parameters import Declared, Given, OptionGroup, argument, in_panel, option, switch
from dynatui.prompts import from_text
from dynatui.record.reader import SERVERS, server_events
from dynatui.record.recording import Recorder
from dynatui.render.server import wasted
from dynatui.servers.attach.address import Address, address, is_here
from dynatui.servers.attach.events import MOST_POINTS, Event
from dynatui.session import View
from dynatui.sources.server import Promised, ServerSource, played, polled
from dynatui.state.server_state import ServerState, applied, final_words, remark, verdict
from dynatui.state.server_state import news as news_of_findings
from dynatui.terminal import streams
from dynatui.terminal.shutdown import stoppable

BROKEN_PROMISE = 5
"""Exit code with --expect if the server falls short of the profile's prediction, or could not be compared with it."""
_SHORTEST_S, _LONGEST_S = 0.1, 3600.0
_LOOK_UP_S = 0.05
_PATIENCE_S = 1.0
"""Seconds from a signal to the interruption of a blocked write."""
_WAIT_S = 0.5
WATCHING = "Watching"
PROMISE = "Promise"


def schedule(text: str) -> tuple[tuple[int, int, int], ...]:
    """Parses drafted tokens by running requests, such as 5 or 1-16:5,17-64:3,65-:0, to (least, most running requests,
    drafted tokens); raises ConfigError.
    """
    from dynatui.servers.attach.expectation import ANY_LOAD  # noqa: PLC0415 - not needed without a profile

    bands = list[tuple[int, int, int]]()
    for part in text.split(","):
        match = re.fullmatch(r"(?:(\d{1,9})(?:-(\d{0,9}))?:)?(\d{1,3})", part.strip())
        first = int(match[1] or 1) if match else 0
        last = int(match[2] or ANY_LOAD) if match and (match[2] is not None or not match[1]) else first
        if match is None or not 0 < first <= last or (bands and first <= bands[-1][1]) or len(bands) == MOST_POINTS:
            form = "give drafted tokens, or several by running requests, such as 1-16:5,17-64:3"
            raise ConfigError(f"--draft-tokens is {quoted(text)}; {form}")
        bands.append((first, last, int(match[3])))
    return tuple(bands)


def _promised(
    expect: Path | None,
    deployed: str | None,
    draft_tokens: str | None,
    p_min: float | None,
    baselines: list[Path] | None,
) -> Promised | None:
    if expect is None:
        given = {"--deployed": deployed, "--draft-tokens": draft_tokens, "--p-min": p_min, "--baseline": baselines}
        for name, value in given.items():
            require(value in (None, []), f"{name} is given without --expect; give the profile too")
        return None
    from dynatui.servers.attach.course import load_points  # noqa: PLC0415 - not needed without a profile
    from dynatui.servers.attach.expectation import promises  # noqa: PLC0415
    from dynatui.servers.profile_file import read_profile  # noqa: PLC0415

    plain = [point for path in baselines or () for point in load_points(server_events(path)) if not point.k]
    if baselines and not plain:
        named = ", ".join(map(shortened, baselines))
        remedy = "record the server without drafts, while it serves requests"
        raise ConfigError(f"--baseline {named} has no time of a step without drafts; {remedy}")
    advised = None if draft_tokens is None else schedule(draft_tokens)
    return promises(expect, read_profile(expect), deployed, advised, plain, p_min)


PARAMETERS: Declared = (
    argument(
        "where",
        "URL",
        "The server: HOST:PORT, http://HOST:PORT or https://HOST, with or without /metrics.",
        parse=address,
    ),
    *in_panel(
        WATCHING,
        option("--interval S", "Seconds from one reading of the metrics to the next.", float, default=1.0),
        option(
            "--polls N",
            "End after N readings of the metrics, but not before the answer to --prompt; without --polls, end only "
            "when interrupted.",
            int,
            least=1,
        ),
        option(
            "--prompt TEXT",
            "Send this prompt to the server once, and show the rounds of the answer if the server reports rounds.",
        ),
        option("--max-new-tokens N", "Maximum number of tokens in the answer to --prompt.", int, default=128, least=1),
        option("--record FILE", "Record all events to FILE, for dynatui replay FILE.", Path),
    ),
    OptionGroup(
        "promised",
        in_panel(
            PROMISE,
            option(
                "--expect FILE",
                "Compare the server with a profile that dynatui profile has written; exit code 0 if it keeps what the "
                "profile promises, 5 if not, with the cause.",
                Path,
            ),
            option("--deployed NAME", "The profile's draft that the server uses, if the profile has several."),
            option(
                "--draft-tokens K",
                "Drafted tokens a round that were advised, or several by running requests, such as 1-16:5,17-64:3. "
                "Default: those that follow from the costs in the profile.",
            ),
            option(
                "--p-min P", "Least draft probability with which the server drafts a token, if that was advised.", float
            ),
            option(
                "--baseline FILE",
                "A recording of the same server without drafts, which tells whether drafts make it slower. May be "
                "repeated.",
                list[Path],
                name="baselines",
            ),
        ),
        _promised,
    ),
    switch(
        "--headless",
        "Show no screen, and print one JSON line per reading on standard output.",
        name="no_screen",
        panel=options.OUTPUT,
    ),
    OptionGroup("view", [each for each in options.VIEW_OPTIONS if each.name != "mouse"]),
)


def attach(
    where: Address,
    *,
    interval: float,
    polls: int | None,
    prompt: str | None,
    max_new_tokens: int,
    record: Path | None,
    promised: Promised | None,
    no_screen: bool,
    view: Given,
) -> int:
    """Watch the speculative decoding of a running server: vLLM, SGLang, llama.cpp, TensorRT-LLM or TGI.

    Reads the server's metrics every second. An access token is read from the variable DYNATUI_ATTACH_TOKEN. Without a
    terminal, prints one JSON line per reading.
    """
    if not _SHORTEST_S <= interval <= _LONGEST_S:
        raise ConfigError(f"--interval is {quoted(interval)}; give {_SHORTEST_S:g} to {_LONGEST_S:g} seconds")
    shown = request.view(view, settings.keymap())
    on_screen = not no_screen and streams.can_show_screen()
    from dynatui.servers.attach.client import token  # noqa: PLC0415 - imports an HTTP client
    from dynatui.servers.attach.request import Request  # noqa: PLC0415
    from dynatui.servers.attach.session import Polling  # noqa: PLC0415

    secret = token()
    if secret and where.base.startswith("http:") and not is_here(where.base):
        streams.say(f"the token is sent to {where.base} unencrypted; with https:// it would be encrypted")
    request_of_ours = None if prompt is None else Request(from_text(prompt), max_new_tokens)
    recorder = Recorder(record, form=SERVERS) if record else None
    plan, expected = Polling(where, interval, polls), promised is not None
    source = ServerSource(polled(plan, secret, request_of_ours, promised), recorder)
    code = _shown(source, shown, expected=expected) if on_screen else _printed(source, expected=expected)
    if recorder is not None:
        recorder.require_kept()
    return code


def replay_server(path: Path, view: View, *, on_screen: bool) -> int:
    if on_screen:
        return _shown(ServerSource(played(server_events(path), view.speed or 1.0), live=False), view)
    out, _ = streams.for_printing()
    for event in server_events(path):
        streams.show(encode(event).decode(), out)
    return 0


def _shown(source: ServerSource, view: View, *, expected: bool = False) -> int:
    from dynatui.screen.run import attach as attach_on_screen  # noqa: PLC0415 - imports textual

    return attach_on_screen(source, view, BROKEN_PROMISE if expected else 0)


def _printed(source: ServerSource, *, expected: bool = False) -> int:
    out, _ = streams.for_printing()
    state = ServerState()
    stop = threading.Event()

    def request_stop(_number: int) -> float:
        stop.set()
        return _PATIENCE_S

    with stoppable(request_stop):
        source.start()
        try:
            for event in _taken(source, stop.is_set):
                streams.show(encode(event).decode(), out)
                before, state = state, applied(state, event)
                for line in _news(before, state):
                    streams.say(line)
        finally:
            source.close(_WAIT_S)
    code = _judged(state) if expected else 0
    if stop.is_set():
        streams.say("interrupted")
    return INTERRUPTED if stop.is_set() else code


def _judged(state: ServerState) -> int:
    judged = verdict(state, final=True)
    for line in final_words(state, judged):
        streams.say(line)
    return 0 if judged.kept else BROKEN_PROMISE


def _taken(source: ServerSource, stopped: Callable[[], bool]) -> Iterator[Event]:
    while not stopped():
        over = source.ended
        yield from source.take()
        if over:
            return
        time.sleep(_LOOK_UP_S)


def _news(before: ServerState, after: ServerState) -> Iterator[str]:
    """Messages about changes between two states; a change that lasts for several polls is reported once."""
    if after.server is not None and after.server is not before.server:
        title = after.kind.title if after.kind else after.server.kind
        yield f"{title} at {after.server.url} {', '.join(after.server.models)}".rstrip()
    yield from news_of_findings(before, after)
    if before.gap is not None and after.gap is None:
        yield "the server answers again"
    if after.wasted is not None and before.wasted is None:
        yield wasted(after.wasted, after.t)[0]
    if before.wasted is not None and after.wasted is None and not after.began_anew:
        yield "drafts are accepted again"
    if (line := remark(after)) and line != remark(before):
        yield line
