"""A follower's cache equals the leader's after each pass, whatever changed the leader's cache in between."""

import random

import pytest
import torch
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.tensor_parallel.target import LeaderCache, follow

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
                    cache.reserve(cache.used + chance.randint(0, 40))
    sides.run(1)


def test_rows_in_place_are_not_told() -> None:
    sides = Sides()
    sides.run(4)
    sides.keep([0, 1])
    assert sides.leader.take_moves() == []


def test_a_move_is_told_once() -> None:
    sides = Sides()
    sides.run(4)
    sides.keep([0, 3])
    assert sides.leader.take_moves() == [(1, 3)]
    assert sides.leader.take_moves() == []


def test_a_cursor_that_was_set_by_hand_is_followed() -> None:
    """Measurements of pass costs set the cache's length beyond the forwarded rows."""
    leader, follower = LeaderCache(empty(8), 0), KvCache(empty(8))
    leader.length = leader.used = 5
    follow(follower, leader.store.shape[3], leader.used, leader.take_moves())
    assert follower.used == 5
