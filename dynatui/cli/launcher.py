"""Runs a command line as several ranks on one machine; all ranks end together.

Replaces torchrun for one machine, with three additions: if one rank ends, all ranks end within seconds; the reason is
printed once; and the terminal is restored even if the rank that displayed the screen was killed. Knows nothing of
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
from dynatui.terminal.foreground import wait_for_foreground
from dynatui.terminal.last_word import LastWord
from dynatui.terminal.output import give_back, modes_of
from dynatui.terminal.signals import STOP_SIGNALS

MOST = 16
"""No machine has more GPUs."""
OWN_WORD_S = 0.7
"""Time in which the leader may report why a follower failed, before the follower's output is printed."""
GRACE_S = 3.5
"""Time from a signal until the leader is killed if it has not ended by itself."""
_TURN_S = 3600.0
_MOST_SAID = 4096
"""Characters printed from the end of a follower's standard error."""
_HERE = "127.0.0.1"
_SOURCE = Path(dynatui.__file__).parents[1]


@dataclass(frozen=True)
class _Follower:
    rank: int
    process: Popen[bytes]
    errors: IO[bytes]

    @property
    def failed(self) -> bool:
        """Whether it ended through an error of its own, not because the leader ended."""
        return self.process.poll() not in (None, 0, LOST)

    @property
    def refused(self) -> bool:
        """Whether an invalid request or model ended it, which the leader may report too."""
        return self.process.returncode in (ConfigError.exit_code, ModelError.exit_code)


def launch(count: int, arguments: Sequence[str], *, drawn: bool, further_s: float = 0.0) -> int:
    """Runs a command line as `count` ranks, of which the leader may be `drawn` on the terminal; returns the exit code.

    A first signal extends `GRACE_S` by `further_s`; after a second signal, or if a rank has failed, it is not extended.
    Raises ConfigError if `count` is larger than `MOST`.
    """
    require(
        count <= MOST,
        f"--tensor-parallel {count} would start more than {MOST} processes on this machine; use torchrun to start "
        "processes on several machines",
    )
    if drawn:
        wait_for_foreground(sys.stderr.fileno())
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
    """Starts the ranks, which end when `ending` closes; only the leader shares the token to print an error."""
    lifeline, writer = os.pipe()
    ending.callback(os.close, writer)
    common = {**os.environ, "MASTER_ADDR": _HERE, "MASTER_PORT": str(_free_port()), LIFELINE: str(lifeline)}
    # Ranks import dynatui from the same path as this process, and nothing from the working directory.
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_SOURCE))))
    if "OMP_NUM_THREADS" not in common:
        common["OMP_NUM_THREADS"] = str(_cores_each(count))
    command = [sys.executable, "-P", "-m", "dynatui", *arguments]

    def start(rank: int, variables: dict[str, str], **further: Any) -> Popen[bytes]:
        environment = common | Ranks(rank, count, local=rank, local_count=count).variables() | variables
        pipes = lifeline, word.pipe
        process = Popen(command, env=environment, pass_fds=pipes, **further)  # noqa: S603 - the program itself
        ending.callback(_end, process)
        return process

    leader, followers = start(0, {last_word.VARIABLE: str(word.pipe)}), list[_Follower]()
    for rank in range(1, count):
        errors = ending.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the ranks
        # Followers have their own sessions, so that Ctrl-C at the terminal interrupts only the leader.
        process = start(rank, {}, stdin=DEVNULL, stdout=DEVNULL, stderr=errors, start_new_session=True)
        followers.append(_Follower(rank, process, errors))
    os.close(lifeline)
    return leader, followers


def _until_the_end(
    leader: Popen[bytes], followers: Sequence[_Follower], word: LastWord, further_s: float
) -> tuple[_Follower | None, bool]:
    """Waits for the leader; makes it end if a follower fails or a signal arrives.

    After a follower's failure this process first claims the right to print an error, so that the leader does not report
    its own interruption. Returns the follower that failed first, and whether this process ended the leader.
    """
    fallen: _Follower | None = None
    terminate_at, latest, forced = math.inf, math.inf, False
    while leader.poll() is None:
        if fallen is None and (fallen := _failed(followers)):
            terminate_at = time.monotonic() + (OWN_WORD_S if fallen.refused else 0)
        if time.monotonic() >= terminate_at:
            word.claimed()
            leader.terminate()
            terminate_at, latest, forced = math.inf, min(latest, time.monotonic() + GRACE_S), True
        rest = min(terminate_at, latest) - time.monotonic()
        arrived = signal.sigtimedwait(_AWAITED, max(0.0, min(rest, _TURN_S)))
        if _changed(leader, os.WSTOPPED):
            signal.raise_signal(signal.SIGTSTP)  # the shell waits for this process, so this process stops too
            if not _changed(leader, os.WCONTINUED):  # the shell has continued this process, but not the leader
                leader.send_signal(signal.SIGCONT)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            if arrived.si_code <= 0:  # sent by kill() to this process only, not by a terminal to both processes
                leader.send_signal(arrived.si_signo)
            latest, further_s = min(latest, time.monotonic() + GRACE_S + further_s), 0.0
        if time.monotonic() >= latest:
            forced = True
            _end(leader)
    return fallen or _failed(followers), forced


def _changed(leader: Popen[bytes], change: int) -> bool:
    """For job control: whether the leader has stopped (WSTOPPED) or continued (WCONTINUED) since the previous call."""
    try:
        return os.waitid(os.P_PID, leader.pid, change | os.WNOHANG) is not None
    except ChildProcessError:  # the leader has ended
        return False


def _failed(followers: Sequence[_Follower]) -> _Follower | None:
    return next((each for each in followers if each.failed), None)


_AWAITED = {*STOP_SIGNALS, signal.SIGCHLD}


@contextmanager
def _signals_pending() -> Iterator[None]:
    """Awaited signals are blocked here, so that they stay pending until `sigtimedwait` accepts them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _blamed(follower: _Follower, word: LastWord) -> int:
    code: int = follower.process.returncode
    if word.claimed():
        _tell(follower, code)
    return code if code > 0 else ModelError.exit_code


def _tell(follower: _Follower, code: int) -> None:
    follower.errors.seek(0)
    errors = clean(follower.errors.read().decode(errors="replace")[-_MOST_SAID:])
    if errors:
        sys.stderr.write(errors)
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
    import loky  # noqa: PLC0415 - takes 10 ms; not needed if OMP_NUM_THREADS is set

    cores: int = loky.cpu_count()
    return max(1, cores // count)
