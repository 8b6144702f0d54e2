"""Runs a command line as several ranks of one machine, and sees to it that all of them end together.

What torchrun does for several machines, with three things more: all are gone within seconds, whichever of them ends and
however; why is told once; and the terminal is given back, though the one that drew on it was killed. Knows nothing of
models.
"""

import math
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import IO, Any

import dynatui
from decoder.errors import ConfigError, ModelError, require
from decoder.tensor_parallel.ranks import LIFELINE, LOST, Ranks
from dynatui.clean import clean
from dynatui.terminal import last_word, streams
from dynatui.terminal.last_word import LastWord
from dynatui.terminal.output import give_back, modes_of
from dynatui.terminal.shutdown import STOP_SIGNALS

MOST = 16
"""Ranks; no machine has more GPUs."""
OWN_WORD_S = 0.7
"""How long the leader may take to refuse what a follower has refused: it tells why, and then nobody else has to."""
GRACE_S = 3.5
"""How long the leader may take to end in its own way."""
_TURN_S = 3600.0
_MOST_SAID = 4096
"""Characters, the last, that are told of a follower's errors."""
_HERE = "127.0.0.1"
_SOURCE = Path(dynatui.__file__).parents[1]


@dataclass(frozen=True)
class _Follower:
    rank: int
    process: Popen[bytes]
    errors: IO[bytes]

    @property
    def failed(self) -> bool:
        """Whether it has ended, and not because the leader let go of it or ended."""
        return self.process.poll() not in (None, 0, LOST)

    @property
    def refused(self) -> bool:
        """Whether what it was asked for cannot be, as the leader may find out by itself."""
        return self.process.returncode in (ConfigError.exit_code, ModelError.exit_code)


def launch(count: int, arguments: Sequence[str], *, drawn: bool, further_s: float = 0.0) -> int:
    """Runs a command line as so many ranks; returns the exit code.

    Args:
        count: Ranks.
        arguments: What stands behind the program's name.
        drawn: Whether the leader draws on the terminal.
        further_s: Beyond `GRACE_S`, how long it may take to end in its own way after a first signal; not after another
            one, nor where a rank has failed.

    Raises:
        ConfigError: They are more than one machine has use for.
    """
    require(
        count <= MOST,
        f"--tensor-parallel {count} would start more than {MOST} processes on this machine; start those of several "
        "machines by torchrun",
    )
    modes = modes_of(sys.stderr.fileno()) if drawn else None
    with ExitStack() as ending:
        word = ending.enter_context(last_word.shared())
        leader, followers = _started(count, arguments, word, ending)
        with _signals_pending():
            fallen, forced = _until_the_end(leader, followers, word, further_s)
        if drawn and leader.returncode < 0:
            give_back(sys.stderr.fileno(), modes)
        if fallen and (forced or leader.returncode == LOST):
            return _blamed(fallen, word)
    if leader.returncode < 0:
        streams.say(f"the leading process was ended by {signal.Signals(-leader.returncode).name}")
        return 128 - leader.returncode
    return ModelError.exit_code if leader.returncode == LOST else leader.returncode


def _started(
    count: int, arguments: Sequence[str], word: LastWord, ending: ExitStack
) -> tuple[Popen[bytes], list[_Follower]]:
    """The leader, which shares the last word, and its followers; all end with this context at the latest."""
    lifeline, held = os.pipe()
    ending.callback(os.close, held)
    common = {**os.environ, "MASTER_ADDR": _HERE, "MASTER_PORT": str(_free_port()), LIFELINE: str(lifeline)}
    # Found where this process has found it, and nothing else of the folder that it was started in.
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_SOURCE))))
    if "OMP_NUM_THREADS" not in common:
        common["OMP_NUM_THREADS"] = str(_cores_each(count))
    command = [sys.executable, "-P", "-m", "dynatui", *arguments]

    def start(rank: int, variables: dict[str, str], **further: Any) -> Popen[bytes]:
        told = common | Ranks(rank, count, local=rank, local_count=count).variables() | variables
        pipes = lifeline, word.pipe
        process = Popen(command, env=told, pass_fds=pipes, **further)  # noqa: S603 - the program itself
        ending.callback(_end, process)
        return process

    leader, followers = start(0, {last_word.VARIABLE: str(word.pipe)}), list[_Follower]()
    for rank in range(1, count):
        errors = ending.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the ranks
        # Of a session of its own, so that keys of the terminal interrupt the leader alone.
        process = start(rank, {}, stdin=DEVNULL, stdout=DEVNULL, stderr=errors, start_new_session=True)
        followers.append(_Follower(rank, process, errors))
    os.close(lifeline)
    return leader, followers


def _until_the_end(
    leader: Popen[bytes], followers: Sequence[_Follower], word: LastWord, further_s: float
) -> tuple[_Follower | None, bool]:
    """Waits until the leader has ended, as a follower that fails or a signal asks it to.

    Where a follower has failed, the last word is settled first: a leader that is asked to end is not to tell of that.

    Returns:
        The follower that failed first, if any did, and whether the leader was sent a signal for that or for being late.
    """
    fallen: _Follower | None = None
    asked, latest, forced = math.inf, math.inf, False
    while leader.poll() is None:
        if fallen is None and (fallen := _failed(followers)):
            asked = time.monotonic() + (OWN_WORD_S if fallen.refused else 0)
        if time.monotonic() >= asked:
            word.claimed()
            leader.terminate()
            asked, latest, forced = math.inf, min(latest, time.monotonic() + GRACE_S), True
        rest = min(asked, latest) - time.monotonic()
        arrived = signal.sigtimedwait(_AWAITED, max(0.0, min(rest, _TURN_S)))
        if _changed(leader, os.WSTOPPED):
            signal.raise_signal(signal.SIGTSTP)  # the shell waits for this process
            if not _changed(leader, os.WCONTINUED):  # a shell continues both, but there may be none
                leader.send_signal(signal.SIGCONT)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            if arrived.si_code <= 0:  # a process has sent it; what a terminal sends, the leader gets too
                leader.send_signal(arrived.si_signo)
            latest, further_s = min(latest, time.monotonic() + GRACE_S + further_s), 0.0
        if time.monotonic() >= latest:
            forced = True
            _end(leader)
    return fallen or _failed(followers), forced


def _changed(leader: Popen[bytes], change: int) -> bool:
    """Job control: whether it has stopped (WSTOPPED) or continued (WCONTINUED) since this was last asked."""
    try:
        return os.waitid(os.P_PID, leader.pid, change | os.WNOHANG) is not None
    except ChildProcessError:  # it has ended, which this does not ask about
        return False


def _failed(followers: Sequence[_Follower]) -> _Follower | None:
    return next((each for each in followers if each.failed), None)


_AWAITED = {*STOP_SIGNALS, signal.SIGCHLD}


@contextmanager
def _signals_pending() -> Iterator[None]:
    """Within, what is awaited waits until it is asked for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _blamed(follower: _Follower, word: LastWord) -> int:
    """Tells why a follower failed, unless the leader has told; returns the exit code that follows from it."""
    code: int = follower.process.returncode
    if word.claimed():
        _tell(follower, code)
    return code if code > 0 else ModelError.exit_code


def _tell(follower: _Follower, code: int) -> None:
    """What a follower has said, or how it ended without a word."""
    follower.errors.seek(0)
    said = clean(follower.errors.read().decode(errors="replace")[-_MOST_SAID:])
    if said:
        sys.stderr.write(said)
    else:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        streams.say(f"process {follower.rank} of the target {how}")


def _end(process: Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        port: int = probe.getsockname()[1]
    return port


def _cores_each(count: int) -> int:
    import loky  # noqa: PLC0415 - takes 10 ms, which nobody needs who sets OMP_NUM_THREADS

    cores: int = loky.cpu_count()
    return max(1, cores // count)
