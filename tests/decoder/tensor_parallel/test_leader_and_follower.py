"""With a leader, every method decodes the same text, and a follower of its messages has the same caches, whatever
changed the leader's cache in between; the channel between them ends with its threads.

Both sides are in one process, each with the whole model, because the tests check only their messages.
"""

import os
import random
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig, decode
from decoder.errors import ConfigError, LostRankError
from decoder.events import End, Event, Run, Summary
from decoder.forward.kv_cache import KvCache
from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.tensor_parallel.target import PEAK, LeaderCache, PassCommand, follow
from tests import tiny
from tests.decoder import any_family
from tests.decoder.makers import Played, TinyModels, play
from tests.decoder.tensor_parallel.led_engine import Led, led, led_by

PROMPT = "The tree grows"
SPREAD = tuple(name for name, method in METHODS.items() if not method.whole_target)
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)


@torch.inference_mode()
def raced(found: Led, config: RunConfig) -> Played:
    return play(found.engine, config, PROMPT)


@pytest.fixture
def found(tiny_models: TinyModels) -> Led:
    return led(tiny_models, "llama")


@pytest.mark.parametrize(("family", "temperature"), [("neox", 0.7), ("qwen3", 0.0)])
def test_all_methods_that_can_be_spread_write_what_ar_writes_and_the_follower_keeps_up(
    tiny_models: TinyModels, family: str, temperature: float
) -> None:
    run = RunConfig(SPREAD, 20, temperature=temperature, dynatree=BUSHY, fixed=Fixed(tau=0.01, n_max=40))
    found = led(tiny_models, family)
    race, whole = raced(found, run), tiny_models.play(family, "float32", PROMPT, run)
    assert {method: race.tokens(method) for method in SPREAD} == {method: whole.tokens(method) for method in SPREAD}
    assert found.compared.passes == sum(isinstance(message, PassCommand) for message in found.channel.messages) > 40


@pytest.mark.parametrize("family", ["gemma4_text", "mistral"])
def test_a_follower_keeps_up_with_windows_and_with_rows_of_several_shapes(family: str) -> None:
    module = any_family.built(any_family.config_of(family))
    engine = led_by(any_family.engine_of(module, tiny.kin(module, seed=2)), module).engine
    text, _ = any_family.decoded(engine, any_family.PROMPT, RunConfig(("dynatree",), 30))
    assert text == any_family.greedy(module, any_family.PROMPT, 30)


def test_followers_let_go_of_caches_that_the_leader_has_let_go_of(found: Led) -> None:
    for _ in range(4):
        raced(found, RunConfig(("linear", "ar"), 4))
    assert len(found.channel.caches) < 8


def test_a_run_tells_its_ranks_and_their_memory(found: Led) -> None:
    run, *_, summary = raced(found, RunConfig(("ar",), 4)).events
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    assert (run.ranks, run.place) == (["cpu", "cpu"], "2 processes on cpu")
    assert "over 2 processes" in run.path_reason
    least, most = summary.peak_bytes_by_rank
    assert most == least + 1 > 1
    assert found.channel.messages[-1] == PEAK


@pytest.mark.parametrize("method", [name for name, found in METHODS.items() if found.whole_target])
def test_methods_that_need_the_whole_target_are_refused_by_name(found: Led, method: str) -> None:
    with pytest.raises(ConfigError, match=f"^{method} needs the whole target"):
        list(decode(found.engine, PROMPT, RunConfig((method, "ar"), 4)))


def fails_with(found: Led, number: int, error: BaseException) -> None:
    """The channel fails at the message of this number."""

    def before(passes: int) -> None:
        if passes == number:
            raise error

    found.channel.before = before


def test_a_pass_that_fails_is_told_in_a_sentence_and_none_follows_it(found: Led) -> None:
    closed = "[/src/pair.cc:553] Connection closed by peer [::1]:1. Check the logs of the worker."
    fails_with(found, 5, RuntimeError(closed))
    told = r"^the 2 processes of the target cannot go on: Connection closed by peer \[::1\]:1; "
    events: list[Event] = []
    with torch.inference_mode(), pytest.raises(LostRankError, match=told):
        events.extend(decode(found.engine, PROMPT, RunConfig(("ar",), 24)))
    assert isinstance(events[-1], End)
    assert events[-1].reason == "error"
    count = len(found.channel.messages)
    with pytest.raises(LostRankError, match="start again"):
        raced(found, RunConfig(("ar",), 24))
    assert len(found.channel.messages) == count


def test_a_follower_that_is_gone_when_memory_is_asked_for_is_told_in_a_sentence(found: Led) -> None:
    fails_with(found, 1, RuntimeError("Connection closed by peer"))
    with pytest.raises(LostRankError, match="cannot go on: Connection closed by peer"):
        found.leader.peak_bytes()


def test_a_difference_from_ar_is_told_without_a_verdict(found: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement of near ties needs the whole module in one process."""
    assert not found.engine.pair.target.hf.available
    usual, passes = found.leader.forward, count(1)

    def astray(*given: Any) -> Tensor:
        return -usual(*given) if next(passes) == 9 else usual(*given)

    monkeypatch.setattr(found.leader, "forward", astray)
    figures = raced(found, RunConfig(("linear", "ar"), 24)).figures("linear")
    assert (figures.identical_to_ar, figures.near_tie, figures.first_difference_gap) == (False, None, None)


def test_after_an_interruption_in_a_pass_there_is_none_that_the_ranks_could_misunderstand(found: Led) -> None:
    fails_with(found, 1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        raced(found, RunConfig(("ar",), 24))
    with pytest.raises(LostRankError, match="cannot go on"):
        found.leader.peak_bytes()
    assert len(found.channel.messages) == 1


HEADS = 2
ROUNDS = 60


def empty(capacity: int) -> Tensor:
    return torch.zeros((1, 2, HEADS, capacity, 1))


def appended(cache: KvCache, values: list[float]) -> None:
    """Adds rows to a cache in use, as a pass does."""
    end = cache.used + len(values)
    cache.store[..., cache.used : end, :] = torch.tensor(values)[:, None]
    cache.used = end


def held(cache: KvCache) -> list[float]:
    found: list[float] = cache.store[0, 0, 0, : cache.used, 0].tolist()
    return found


class Sides:
    """A leader's and a follower's cache, and their expected rows, which are computed by plain list operations."""

    def __init__(self) -> None:
        self.leader, self.follower = LeaderCache(empty(8), 0), KvCache(empty(8))
        self.right: list[float] = []
        self.next = 0.0

    def run(self, count: int) -> None:
        """Runs a pass of `count` rows on both caches."""
        values = [self.next + index for index in range(count)]
        self.next += count
        self.leader.reserve(self.leader.used + count)
        follow(self.follower, self.leader.store.shape[3], self.leader.used, self.leader.take_moves())
        for cache in (self.leader, self.follower):
            appended(cache, values)
        self.right += values
        assert held(self.leader) == self.right
        assert held(self.follower) == self.right

    def keep(self, rows: list[int]) -> None:
        self.right = self.right[: self.leader.length] + [self.right[row] for row in rows]
        self.leader.keep(rows)

    def cut(self, length: int) -> None:
        self.leader.cut(length)
        self.right = self.right[: self.leader.used]

    def drop(self, first: int, count: int) -> None:
        self.right = self.right[:first] + self.right[first + count :]
        self.leader.drop(first, count)


@pytest.mark.parametrize("seed", range(20))
def test_rows_follow_whatever_is_kept_cut_dropped_and_reserved(seed: int) -> None:
    chance, sides = random.Random(seed), Sides()
    for _ in range(ROUNDS):
        sides.run(chance.randint(1, 6))
        for _ in range(chance.randint(0, 3)):
            cache = sides.leader
            drafted = range(cache.length, cache.used)
            match chance.choice(("keep", "cut", "drop", "reserve")):
                case "keep":
                    sides.keep(sorted(chance.sample(drafted, chance.randint(0, len(drafted)))))
                case "cut":
                    sides.cut(chance.randint(cache.length // 2, cache.length))
                case "drop" if cache.used:
                    first = chance.randrange(cache.used)
                    sides.drop(first, chance.randint(0, cache.used - first))
                case _:
                    before = cache.store.shape[3]
                    cache.reserve(cache.used + chance.randint(0, 40))
                    assert cache.store.shape[3] >= before
    sides.run(1)


def test_a_move_is_told_once_and_rows_in_place_are_not_told() -> None:
    for kept, moves in (([0, 1], []), ([0, 3], [(1, 3)])):
        sides = Sides()
        sides.run(4)
        sides.keep(kept)
        assert sides.leader.take_moves() == moves
        assert sides.leader.take_moves() == []


def test_a_cursor_that_was_set_by_hand_is_followed() -> None:
    """Measurements of pass costs set the cache's length beyond the forwarded rows."""
    leader, follower = LeaderCache(empty(8), 0), KvCache(empty(8))
    leader.length = leader.used = 5
    follow(follower, leader.store.shape[3], leader.used, leader.take_moves())
    assert follower.used == 5


ROOT = Path(__file__).parents[3]

LEADER = """
import time
from pathlib import Path

import torch
import torch.distributed as dist

from decoder.tensor_parallel.target import PEAK, Channel
from decoder.tensor_parallel.ranks import Ranks

def count():
    return len(list(Path("/proc/self/task").iterdir()))

def counted(make=dist.new_group, **named):
    counts.append(count())
    return make(**named)

counts = []
dist.new_group = counted
channel = Channel(Ranks(0, 1, 0, 1), torch.device("cpu"))
counts.append(count())
channel.send(PEAK)
channel.release()
end = time.monotonic() + 20
while count() > counts[0] and time.monotonic() < end:
    time.sleep(0.01)  # the system takes a thread off its list a little after its end
counts.append(count())
print(*counts)
"""
"""A program with one rank, the leader; prints its number of threads before and with the channel, and at the end."""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_of_the_channel_is_left_after_its_release() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    done = subprocess.run(
        [sys.executable, "-c", LEADER],
        env={**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    before, within, after = map(int, done.stdout.split())
    assert after <= before < within
