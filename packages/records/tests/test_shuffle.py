"""Shuffles: each is a permutation, statistically like a random one, and samplers can rely on it."""

import itertools
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

from onecopy_records.shuffle import Shuffle

MASK = 2**64 - 1
of_chance = pytest.mark.unsanitized  # a claim about numbers, not about memory


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def documented(n: int, seed: int, epoch: int, position: int) -> int:
    """Compute what stands at a position, as docs/reference/records.md has it."""
    golden, state, keys = 0x9E3779B97F4A7C15, 0, []
    for word in (seed, epoch, n):
        state = mix((state ^ word) + golden & MASK)
    for _ in range(8):
        state = state + golden & MASK
        keys.append(mix(state))
    bits = max(8, (n - 1).bit_length())
    low = bits // 2
    while True:
        left, right = position >> low, position % 2**low
        for first, second in zip(keys[::2], keys[1::2], strict=True):
            left ^= mix(right ^ first) % 2 ** (bits - low)
            right ^= mix(left ^ second) % 2**low
        position = left << low | right
        if position < n:
            return position


def uniform(counts: np.ndarray, cells: int) -> bool:
    """Tell whether counts over equally likely cells, the empty ones included, are as chance has them (6 sigma)."""
    expected = counts.sum() / cells
    chi2 = ((counts - expected) ** 2).sum() / expected + (cells - counts.size) * expected
    return abs(chi2 - (cells - 1)) < 6 * math.sqrt(2 * (cells - 1)) + 6


def tables(n: int, rounds: int) -> np.ndarray:
    return np.array([np.asarray(Shuffle(n, seed, seed % 3)) for seed in range(rounds)])


# --- the order ------------------------------------------------------------------------------------------------------


def test_the_module_loads_neither_numpy_nor_the_readers_of_rows(python):
    found = python("import sys, onecopy_records.shuffle; print({'numpy', 'onecopy_records.rows'} & {*sys.modules})")
    assert found == "set()\n"


def test_every_n_up_to_300_gives_every_number_once():
    for n in range(301):
        assert sorted(Shuffle(n, seed=n)) == list(range(n))


@pytest.mark.parametrize("n", [10**6, 2**24 + 1, 10**9, 2**40 - 1, 2**63 - 1])
def test_large_orders_are_inverted_by_index(n):
    order = Shuffle(n, seed=3)
    for position in [0, 1, n // 3, n // 2, n - 1]:
        assert 0 <= order[position] < n
        assert order.index(order[position]) == position
        assert order[order.index(position)] == position


@given(st.integers(1, 2**63 - 1), st.integers(0, MASK), st.integers(0, MASK), st.data())
def test_the_order_is_as_documented(n, seed, epoch, data):
    position = data.draw(st.integers(0, n - 1))
    assert Shuffle(n, seed, epoch)[position] == documented(n, seed, epoch, position)


@of_chance
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_numbers_is_equally_likely(n):
    orders = tables(n, 40_000) @ n ** np.arange(n)
    assert uniform(np.unique(orders, return_counts=True)[1], math.factorial(n))


@of_chance
@pytest.mark.parametrize("n", [8, 16, 17, 30])
def test_every_pair_of_numbers_is_equally_likely_at_every_pair_of_positions(n):
    table = tables(n, 40_000)
    for one, other in [(0, 1), (0, n - 1), (3, 5), (n - 2, n - 1)]:
        assert uniform(np.unique(table[:, one] * n + table[:, other], return_counts=True)[1], n * (n - 1))


def test_neighbours_in_a_large_order_are_unrelated():
    n = 10**9
    numbers = np.asarray(Shuffle(n)[:200_001])
    assert uniform(np.unique(numbers[:-1] * 20 // n * 20 + numbers[1:] * 20 // n, return_counts=True)[1], 400)
    assert uniform(np.bincount(numbers % 64), 64)
    assert uniform(np.bincount((numbers[1:] - numbers[:-1]) % 64), 64)


def test_successive_seeds_and_epochs_are_unrelated():
    base = np.asarray(Shuffle(10_000, seed=5, epoch=5))
    for seed, epoch in [(5, 6), (6, 5), (5, 4), (4, 6)]:
        assert np.count_nonzero(base == np.asarray(Shuffle(10_000, seed, epoch))) < 12  # 1 is expected


# --- a sequence -----------------------------------------------------------------------------------------------------

slices = st.builds(slice, *[st.none() | st.integers(-30, 30)] * 2, st.none() | st.integers(-5, 5).filter(bool))


@given(st.integers(0, 25), st.integers(0, 9), st.lists(slices, max_size=3))
def test_slices_are_those_of_a_list(n, seed, cuts):
    ours: Shuffle = Shuffle(n, seed)
    theirs = list(ours)
    for cut in cuts:
        ours, theirs = ours[cut], theirs[cut]
    assert len(ours) == len(theirs)
    assert list(ours) == theirs == np.asarray(ours).tolist() == [ours[i] for i in range(len(ours))]
    assert list(reversed(ours)) == theirs[::-1]
    for value in range(-1, n + 1):
        assert (value in ours) == (value in theirs) == bool(ours.count(value))
        if value in theirs:
            assert ours.index(value) == theirs.index(value)


def test_what_is_not_in_it_is_an_error_with_the_reason():
    order = Shuffle(10)[2:5]
    with pytest.raises(IndexError, match=r"index 3 is out of range for <onecopy.Shuffle 3 of 10 seed=0 epoch=0>"):
        order[3]
    with pytest.raises(ValueError, match=r"10 is not in <onecopy\.Shuffle"):
        order.index(10)
    with pytest.raises(ValueError, match="is not in"):
        order.index(order[0], 1)
    assert order.index(order[2], 1, 3) == 2
    assert "3" not in order
    assert None not in order
    assert np.int64(order[0]) in order


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((-1,), ValueError), ((2**63,), ValueError), ((5, -1), ValueError), ((5, 2**64), ValueError),
     ((5, 0, -1), ValueError), ((2.5,), TypeError), (("5",), TypeError)],
)  # fmt: skip
def test_arguments_out_of_range_are_errors(arguments, error):
    with pytest.raises(error):
        Shuffle(*arguments)


def test_a_billion_indices_take_no_memory_and_little_in_a_pickle():
    Shuffle(5)[0]
    tracemalloc.start()
    order = Shuffle(10**9)
    assert order[0] != order[1]
    list(itertools.islice(order, 10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert len(pickle.dumps(order.shard(3, 8)[5:])) < 400
    part = Shuffle(1000, 3, 4).shard(1, 7)[10:50:3]
    assert list(pickle.loads(pickle.dumps(part))) == list(part)


# --- shards ---------------------------------------------------------------------------------------------------------


def distributed(order: list[int], rank: int, world: int, drop_last: bool) -> list[int]:
    """Do what torch's DistributedSampler does with a list."""
    share = math.ceil((len(order) - world) / world) if drop_last and len(order) % world else -(-len(order) // world)
    padded = order[: share * world] if drop_last else (order * (share * world // len(order) + 1))[: share * world]
    return padded[rank::world]


@given(st.integers(1, 60), st.integers(1, 70), st.booleans(), slices)
def test_shards_are_those_of_distributed_sampler(n, world, drop_last, cut):
    order = Shuffle(n, seed=n)
    for rank in range(world):
        expected = distributed(list(order), rank, world, drop_last and n >= world)
        shard = order.shard(rank, world, drop_last=drop_last and n >= world)
        assert list(shard) == expected
        assert list(shard[cut]) == expected[cut] == np.asarray(shard[cut]).tolist()
        assert [shard.index(value) for value in expected] == list(range(len(expected)))


@given(st.integers(0, 200), st.integers(1, 9))
def test_shards_partition_the_order(n, world):
    order = Shuffle(n)
    dropped = [order.shard(rank, world, drop_last=True) for rank in range(world)]
    assert sorted(itertools.chain(*dropped)) == sorted(order[: n // world * world])
    padded = list(itertools.chain(*(order.shard(rank, world) for rank in range(world))))
    assert set(padded) == set(range(n))
    assert len(padded) == -(-n // world) * world


def test_a_shard_of_a_slice_has_only_what_the_slice_has():
    part = Shuffle(100)[::-1][:10]
    assert sorted(itertools.chain(*(part.shard(rank, 5) for rank in range(5)))) == sorted(part)
    again = Shuffle(100).shard(1, 2).shard(2, 5)
    assert list(again) == list(Shuffle(100))[1::2][2::5]
    with pytest.raises(ValueError, match="padded"):
        Shuffle(10).shard(2, 3).shard(0, 2)
    with pytest.raises(ValueError, match="rank must be from 0 to 2, not 3"):
        Shuffle(10).shard(3, 3)


def test_the_environment_of_torchrun_selects_the_shard(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert list(Shuffle.from_environment(10, 3, 1)) == list(Shuffle(10, 3, 1))
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert list(Shuffle.from_environment(10, 3, 1)) == list(Shuffle(10, 3, 1).shard(2, 4))
    assert len(Shuffle.from_environment(10, drop_last=True)) == 2


# --- a sampler ------------------------------------------------------------------------------------------------------


def test_an_epoch_is_an_order_and_an_iteration_keeps_its_own():
    order = Shuffle(10_000, seed=3)
    first = list(order)
    running = iter(order)
    begun = [next(running)]
    order.set_epoch(1)
    assert order.epoch == 1
    assert list(order) == list(Shuffle(10_000, 3, 1))
    assert begun + list(running) == first


@pytest.mark.parametrize("size", [1, 7, 64, 5000, 20_000])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_cuts_of_the_order(size, drop_last):
    order = Shuffle(10_000, seed=1)
    batches = order.batches(size, drop_last=drop_last)
    whole = list(order)
    cuts = [whole[at : at + size] for at in range(0, 10_000, size)]
    if drop_last and len(cuts[-1]) < size:
        cuts.pop()
    assert list(batches) == cuts
    assert len(batches) == len(cuts)


@given(st.integers(0, 9000), st.integers(1, 3), st.sampled_from([None, 1, 50, 5000]))
def test_resuming_gives_what_was_not_taken(taken, world, batch_size):
    whole = Shuffle(9000, 5, 2).shard(world - 1, world)
    taken = min(taken, len(whole))
    steps = taken if batch_size is None else taken // batch_size
    running = iter(whole) if batch_size is None else iter(whole.batches(batch_size))
    done = list(itertools.islice(running, steps))
    again = Shuffle(9000).shard(world - 1, world)
    again.load_state_dict(whole.state_dict())
    again.set_epoch(2)  # as the loop over epochs does; it is this one, so the place stays
    rest = list(again) if batch_size is None else list(again.batches(batch_size))
    assert done + rest == (list(whole) if batch_size is None else list(whole.batches(batch_size)))
    assert list(again) == list(whole)  # the next epoch is a whole one


def test_a_state_takes_the_number_that_a_loader_has_really_consumed():
    order = Shuffle(1000)
    running = iter(order)
    for _ in range(300):  # asked for ahead
        next(running)
    assert order.state_dict()["taken"] == 300
    again = Shuffle(1000)
    again.load_state_dict(order.state_dict(taken=128))
    assert list(again) == list(order)[128:]
    again.load_state_dict(order.state_dict(taken=128))
    again.set_epoch(1)
    assert list(again) == list(Shuffle(1000, 0, 1))


def test_a_state_that_does_not_fit_is_refused():
    state = Shuffle(100).shard(0, 4).state_dict()
    with pytest.raises(ValueError, match=r"the state has 25 of 100 indices, which does not match <onecopy.Shuffle 50"):
        Shuffle(100).shard(0, 2).load_state_dict(state)
    with pytest.raises(ValueError, match="has 25 of 100"):
        Shuffle(101).load_state_dict(state)
    with pytest.raises(ValueError, match=r"the position must be between 0 .* not 26$"):
        Shuffle(100).shard(0, 4).load_state_dict({**state, "taken": 26})
    with pytest.raises(ValueError, match=r"taken.* must .* not 101$"):
        Shuffle(100).state_dict(taken=101)
