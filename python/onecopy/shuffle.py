"""Shuffled indices in no memory: a pseudo-random permutation that is computed where it is asked for.

`torch.randperm(n).tolist()`, which the samplers of torch hold, takes some 40 bytes an index in every rank. `Shuffle`
takes less than a kilobyte whatever n is, and its first index comes at once. It is a sequence (index, slice, ``in``,
``index``) and a sampler of ``torch.utils.data.DataLoader``; its `batches` are a batch sampler. No framework is needed
or loaded.

    order = Shuffle.from_environment(len(dataset), seed=7)      # this rank's part, under torchrun
    loader = DataLoader(dataset, batch_sampler=order.batches(64), num_workers=4)
    for epoch in range(epochs):
        order.set_epoch(epoch)
        for batch in loader: ...

**The order** is a function of n, seed and epoch alone, the same on every machine and in every version; the reference
has the construction. It is for sampling, not for secrets.

**When not to use it.** For sampling with weights or with replacement. Nor does it know the page cache: random order
over data that memory cannot hold is random reading.

**Ownership and threads.** Indexing and slicing change nothing, and any thread may do it. Iterating, `set_epoch` and
`load_state_dict` belong to one thread. The last iteration that was begun is the one that `state_dict` tells of.
"""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from onecopy import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Batches", "Shuffle"]

CHUNK = 4096  # indices that are computed at once


class Shuffle(Sequence[int]):
    """The numbers from 0 to n-1 in pseudo-random order, each once, in no memory.

    Slices and shards are shuffles too, of the same order and in no memory either. ``numpy.asarray`` makes an int64
    array of any of them.

    Parameters
    ----------
    n
        How many; below 2**63.
    seed
        From 0 to 2**64 - 1; the same on all ranks.
    epoch
        Every epoch has an order of its own; see `set_epoch`.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy.shuffle import Shuffle
    >>> order = Shuffle(10, seed=1)
    >>> list(order)
    [0, 9, 7, 3, 6, 2, 5, 8, 1, 4]
    >>> order[3], order.index(8), list(order[-2:])
    (3, 7, [1, 4])
    >>> huge = Shuffle(10**9)
    >>> len(huge[5::2]), huge[-1] in huge[5::2]
    (499999998, True)
    """

    def __init__(self, n: int, seed: int = 0, epoch: int = 0) -> None:
        self._n = _natural("n", n, 63)
        self._seed = _natural("seed", seed)
        self._positions = range(self._n)  # of the permutation that are in this part
        self._steps = self._positions  # through the positions, modulo their number: padding begins again
        self._set(epoch)

    def _set(self, epoch: int, begin: int = 0) -> None:
        """Turn to an epoch whose next iteration starts at `begin`."""
        self._epoch = _natural("epoch", epoch)
        self._order = _core.Permutation(self._n, self._seed, self._epoch)
        self._begin = begin
        self._run = _Run(self, begin)

    # --- a sequence -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Shuffle: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Shuffle:
        if isinstance(index, slice):
            return self._part(self._positions, self._steps[index])
        try:
            step = self._steps[operator.index(index)]
        except IndexError:
            raise IndexError(f"index {index} is out of range for {self!r}") from None
        return self._order.at(self._positions[step % len(self._positions)])

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """Return where a number stands, without searching; ValueError where it is not in this part."""
        for step in self._steps_to(value):
            if step in self._steps and (at := self._steps.index(step)) in range(len(self))[start:stop]:
                return at
        raise ValueError(f"{value!r} is not in {self!r}")

    def count(self, value: object) -> int:
        """Return 1 where a number is in this part, else 0."""
        return int(value in self)

    def __contains__(self, value: object) -> bool:
        return any(step in self._steps for step in self._steps_to(value))

    def _steps_to(self, value: Any) -> range:
        """Return all steps, of this part or another, that lead to a number."""
        try:
            number = operator.index(value)
        except TypeError:
            return range(0)
        if not 0 <= number < self._n or (position := self._order.index_of(number)) not in self._positions:
            return range(0)
        last = max(self._steps[0], self._steps[-1]) if self._steps else -1
        return range(self._positions.index(position), last + 1, len(self._positions))

    def __reversed__(self) -> Iterator[int]:
        return iter(self[::-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        if copy is False:
            raise ValueError("a shuffle has no memory to share: its numbers are computed")
        numbers = np.empty(len(self), np.int64)
        self._fill(self._order, self._steps, numbers)
        return numbers if dtype is None else numbers.astype(dtype, copy=False)

    def _fill(self, order: _core.Permutation, steps: range, numbers: memoryview | NDArray[np.int64]) -> None:
        """Write what stands at some steps of an order."""
        at, count = 0, len(self._positions)
        while at < len(steps):
            first = steps[at] % count
            room = count - 1 - first if steps.step > 0 else first  # steps on, until they begin again
            end = min(len(steps), at + 1 + room // abs(steps.step))
            order.fill(self._positions[first], self._positions.step * steps.step, numbers[at:end])
            at = end

    # --- parts ----------------------------------------------------------------------------------------------------

    def _part(self, positions: range, steps: range) -> Shuffle:
        part = Shuffle(self._n, self._seed, self._epoch)
        part._positions, part._steps = positions, steps
        return part

    def shard(self, rank: int, world_size: int, *, drop_last: bool = False) -> Shuffle:
        """Return the part of one of `world_size` ranks: every world_size-th number from the rank-th on.

        All ranks get equally many, as from torch's DistributedSampler: where the length is no multiple of `world_size`,
        the first numbers are used again at the end, or with `drop_last` the last ones are left out. What one part does
        later (`set_epoch`, iterating), the others do not notice.
        """
        world, rank = _natural("world_size", world_size), _natural("rank", rank)
        if rank >= world:
            raise ValueError(f"rank {rank} of {world}: ranks are counted from 0")
        if self._steps and max(self._steps[0], self._steps[-1]) >= len(self._positions):
            raise ValueError(f"{self!r} is padded, and cannot be divided again: divide the whole")
        share = len(self) // world if drop_last else -(-len(self) // world)
        return self._part(_through(self._positions, self._steps), range(rank, share * world, world))

    @classmethod
    def from_environment(cls, n: int, seed: int = 0, epoch: int = 0, *, drop_last: bool = False) -> Shuffle:
        """Return this rank's shard, by the variables RANK and WORLD_SIZE of torchrun; without them all of it."""
        rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return cls(n, seed, epoch).shard(rank, world, drop_last=drop_last)

    # --- a sampler ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        for chunk in self._start().chunks(CHUNK):
            yield from chunk

    def _start(self) -> _Run:
        """Begin an iteration, the one that `state_dict` tells of."""
        self._run, self._begin = _Run(self, self._begin), 0
        return self._run

    def batches(self, batch_size: int, *, drop_last: bool = False) -> Batches:
        """Return lists of `batch_size` numbers, for ``DataLoader(batch_sampler=...)``; the last may be shorter."""
        return Batches(self, batch_size, drop_last=drop_last)

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch, whose order this is."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Turn to the order of an epoch; an iteration that has begun goes on in its own.

        The epoch that is set already changes nothing, so that a loop over epochs can begin in the middle of one.
        """
        if epoch != self._epoch:
            self._set(epoch)

    def state_dict(self, taken: int | None = None) -> dict[str, int]:
        """Return where the last iteration is, as numbers that any rank of the same job can load.

        Parameters
        ----------
        taken
            How many indices count as done. None: all that the iteration has handed out. A DataLoader with workers
            asks for some batches ahead, so give ``batches_done * batch_size`` there.
        """
        taken = self._run.taken if taken is None else _natural("taken", taken)
        if taken > len(self):
            raise ValueError(f"{taken} taken of {self!r}")
        return {"n": self._n, "length": len(self), "seed": self._seed, "epoch": self._epoch, "taken": taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration go on where another was: the rest of its epoch; indexing has all of it, as ever.

        ValueError where the state is of another n, or of a part of another length (of another number of ranks).
        """
        if (state["n"], state["length"]) != (self._n, len(self)):
            raise ValueError(f"the state is of {state['length']} of {state['n']} indices, and this is {self!r}")
        if not 0 <= state["taken"] <= len(self):
            raise ValueError(f"{state['taken']} taken of {self!r}")
        self._seed = _natural("seed", state["seed"])
        self._set(state["epoch"], state["taken"])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._n, self._seed, self._epoch, self._positions, self._steps)

    def __repr__(self) -> str:
        part = "" if len(self) == self._n else f"{len(self)} of "
        return f"<onecopy.Shuffle {part}{self._n} seed={self._seed} epoch={self._epoch}>"


class Batches:
    """Lists of shuffled numbers: a batch sampler; made by `Shuffle.batches`, whose epoch and place it follows."""

    def __init__(self, order: Shuffle, batch_size: int, *, drop_last: bool = False) -> None:
        self.order, self.batch_size, self.drop_last = order, _natural("batch_size", batch_size), drop_last
        if batch_size == 0:
            raise ValueError("batch_size must not be 0")

    def __len__(self) -> int:
        whole, rest = divmod(len(self.order), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        size = self.batch_size
        for chunk in self.order._start().chunks(max(1, CHUNK // size) * size):
            while batch := list(islice(chunk, size)):
                if len(batch) == size or not self.drop_last:
                    yield batch

    def set_epoch(self, epoch: int) -> None:
        """As `Shuffle.set_epoch`."""
        self.order.set_epoch(epoch)


class _Run:
    """One iteration: it keeps the order that it began with, and knows how far it is."""

    def __init__(self, shuffle: Shuffle, begin: int) -> None:
        self._shuffle, self._order = shuffle, shuffle._order
        self._end = begin
        self._left: Iterator[int] = iter(())

    @property
    def taken(self) -> int:
        """Numbers before this iteration and in it."""
        return self._end - operator.length_hint(self._left)

    def chunks(self, size: int) -> Iterator[Iterator[int]]:
        """Yield iterators of `size` numbers, each to be used up before the next."""
        for at in range(self._end, len(self._shuffle), size):
            steps = self._shuffle._steps[at : at + size]
            numbers = array("q", bytes(8 * len(steps)))
            self._shuffle._fill(self._order, steps, memoryview(numbers))
            self._end, self._left = at + len(steps), iter(numbers.tolist())
            yield self._left


def _natural(name: str, value: SupportsIndex, bits: int = 64) -> int:
    """Return a number as int; ValueError below 0 and beyond so many bits, TypeError for what is no whole number."""
    number = operator.index(value)
    if not 0 <= number < 2**bits:
        raise ValueError(f"{name} must be from 0 to 2**{bits} - 1, but is {number}")
    return number


def _through(positions: range, steps: range) -> range:
    """Return the positions at some steps."""
    if not steps:
        return range(0)
    first, stride = positions[steps[0]], positions.step * steps.step
    return range(first, first + len(steps) * stride, stride)


def _rebuild(n: int, seed: int, epoch: int, positions: range, steps: range) -> Shuffle:
    """Make again what was pickled."""
    return Shuffle(n, seed, epoch)._part(positions, steps)
