"""`Shuffle`: shuffled indices that a pseudo-random permutation computes on demand, without storing them in an array.

`torch.randperm(n).tolist()`, which torch's samplers keep, takes about 40 bytes per index in every rank. `Shuffle` takes
less than a kilobyte for any n, and computes its first index immediately. It is a sequence (index, slice, ``in``,
``index``) and a sampler for ``torch.utils.data.DataLoader``; its method `batches` returns a batch sampler. It does not
import a framework.

    order = Shuffle.from_environment(len(dataset), seed=7)      # the shard of this rank, under torchrun
    loader = DataLoader(dataset, batch_sampler=order.batches(64), num_workers=4)
    for epoch in range(epochs):
        order.set_epoch(epoch)
        for batch in loader: ...

**The order** depends only on n, seed and epoch, and is the same on every machine and in every version. The reference
documents the algorithm, which is suitable for sampling, but not for cryptography.

**When not to use it.** For sampling with weights or with replacement. It ignores the page cache: random order over data
larger than memory causes random reads.

**Threads.** Any thread may index and slice. Only one thread may iterate and call `set_epoch` and `load_state_dict`.
`state_dict` reports the position of the most recently started iteration.
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

CHUNK = 4096  # number of indices that are computed together


class Shuffle(Sequence[int]):
    """The numbers from 0 to n-1 in pseudo-random order, each once, computed on demand.

    Slices and shards are also `Shuffle` objects: parts of the same order, computed on demand. ``numpy.asarray`` returns
    the numbers as an int64 array.

    Parameters
    ----------
    n
        Number of indices, below 2**63.
    seed
        A number from 0 to 2**64 - 1, the same on all ranks.
    epoch
        A number from 0 to 2**64 - 1; the order differs between epochs. See `set_epoch`.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy_records.shuffle import Shuffle
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
        self._n = _unsigned("n", n, 63)
        self._seed = _unsigned("seed", seed)
        self._positions = range(self._n)  # positions in the permutation that belong to this part
        self._steps = self._positions  # indices into `_positions`, modulo its length: padding repeats the first ones
        self._set(epoch)

    def _set(self, epoch: int, begin: int = 0) -> None:
        """Set the epoch, and the index at which the next iteration starts."""
        self._epoch = _unsigned("epoch", epoch)
        self._order = _core.Permutation(self._n, self._seed, self._epoch)
        self._begin = begin
        self._iteration = _Iteration(self, begin)

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
        """Return the index of a number, without a search. Raise ValueError if it is not in this part."""
        for step in self._steps_to(value):
            if step in self._steps and (at := self._steps.index(step)) in range(len(self))[start:stop]:
                return at
        raise ValueError(f"{value!r} is not in {self!r}")

    def __contains__(self, value: object) -> bool:
        return any(step in self._steps for step in self._steps_to(value))

    def _steps_to(self, value: Any) -> range:
        """Return all steps, within this part or beyond it, at which the order contains the number `value`."""
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
            raise ValueError("copy must not be False: a shuffle is computed on demand, so an array is always a copy")
        numbers = np.empty(len(self), np.int64)
        self._fill(self._order, self._steps, numbers)
        return numbers if dtype is None else numbers.astype(dtype, copy=False)

    def _fill(self, order: _core.Permutation, steps: range, numbers: memoryview | NDArray[np.int64]) -> None:
        """Write the numbers at some steps of an order into `numbers`."""
        at, count = 0, len(self._positions)
        while at < len(steps):
            first = steps[at] % count
            distance = (
                count - 1 - first if steps.step > 0 else first
            )  # to the last position before the steps wrap around
            end = min(len(steps), at + 1 + distance // abs(steps.step))
            order.fill(self._positions[first], self._positions.step * steps.step, numbers[at:end])
            at = end

    # --- parts ----------------------------------------------------------------------------------------------------

    def _part(self, positions: range, steps: range) -> Shuffle:
        part = Shuffle(self._n, self._seed, self._epoch)
        part._positions, part._steps = positions, steps
        return part

    def shard(self, rank: int, world_size: int, *, drop_last: bool = False) -> Shuffle:
        """Return one rank's part: every `world_size`-th number, starting with index `rank`.

        As with torch's DistributedSampler, all ranks get the same number of indices: if the length is not a multiple of
        `world_size`, the first numbers are repeated at the end, or with `drop_last`, the last ones are omitted. Shards
        are independent: `set_epoch` and iterating over one shard do not affect the others.

        Raises
        ------
        ValueError
            `rank` is not below `world_size`, or this shuffle is itself a padded shard.
        """
        world, rank = _unsigned("world_size", world_size), _unsigned("rank", rank)
        if rank >= world:
            raise ValueError(f"rank must be from 0 to {world - 1}, not {rank}")
        if self._steps and max(self._steps[0], self._steps[-1]) >= len(self._positions):
            raise ValueError(f"cannot divide {self!r}, which is a padded shard: divide the whole shuffle")
        share = len(self) // world if drop_last else -(-len(self) // world)
        if not self._steps:
            return self._part(range(0), range(0))
        first, stride = self._positions[self._steps[0]], self._positions.step * self._steps.step
        positions = range(first, first + len(self) * stride, stride)
        return self._part(positions, range(rank, share * world, world))

    @classmethod
    def from_environment(cls, n: int, seed: int = 0, epoch: int = 0, *, drop_last: bool = False) -> Shuffle:
        """Return this rank's shard, using torchrun's ``$RANK`` and ``$WORLD_SIZE``, or all indices without them."""
        rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return cls(n, seed, epoch).shard(rank, world, drop_last=drop_last)

    # --- a sampler ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        for chunk in self._start().chunks(CHUNK):
            yield from chunk

    def _start(self) -> _Iteration:
        """Start an iteration, whose position `state_dict` reports from now on."""
        self._iteration, self._begin = _Iteration(self, self._begin), 0
        return self._iteration

    def batches(self, batch_size: int, *, drop_last: bool = False) -> Batches:
        """Return batches of `batch_size` numbers for ``DataLoader(batch_sampler=...)``; the last one may be shorter."""
        return Batches(self, batch_size, drop_last=drop_last)

    @property
    def seed(self) -> int:
        """The seed of the order."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order; a running iteration keeps its order.

        Setting the current epoch has no effect, so that a loop over epochs can resume within an epoch.
        """
        if epoch != self._epoch:
            self._set(epoch)

    def state_dict(self, taken: int | None = None) -> dict[str, int]:
        """Return the position of the most recently started iteration. Any rank in the same job can load it.

        Parameters
        ----------
        taken
            Number of indices consumed. None: all indices that the iteration has yielded. A DataLoader with workers
            fetches batches ahead, so pass ``batches_done * batch_size``.

        Raises
        ------
        ValueError
            `taken` is negative or greater than the length.
        """
        taken = self._iteration.taken if taken is None else _unsigned("taken", taken)
        if taken > len(self):
            raise ValueError(f"taken must be at most the length of {self!r}, not {taken}")
        return {"n": self._n, "length": len(self), "seed": self._seed, "epoch": self._epoch, "taken": taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the epoch and the start of the next iteration from a state. Indexing and slicing are not affected.

        Raises
        ------
        ValueError
            The state has a different n or length (as with a different number of ranks), or an invalid position.
        """
        if (state["n"], state["length"]) != (self._n, len(self)):
            raise ValueError(f"the state has {state['length']} of {state['n']} indices, which does not match {self!r}")
        if not 0 <= state["taken"] <= len(self):
            raise ValueError(f"the position must be between 0 and the length of {self!r}, not {state['taken']}")
        self._seed = _unsigned("seed", state["seed"])
        self._set(state["epoch"], state["taken"])

    def __reduce__(self) -> tuple[object, ...]:
        part = {"_positions": self._positions, "_steps": self._steps}
        return Shuffle, (self._n, self._seed, self._epoch), part

    def __repr__(self) -> str:
        part = "" if len(self) == self._n else f"{len(self)} of "
        return f"<onecopy.Shuffle {part}{self._n} seed={self._seed} epoch={self._epoch}>"


class Batches:
    """A batch sampler that yields lists of shuffled numbers; `Shuffle.batches` returns it."""

    def __init__(self, order: Shuffle, batch_size: int, *, drop_last: bool = False) -> None:
        self.order, self.batch_size, self.drop_last = order, _unsigned("batch_size", batch_size), drop_last
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
        """Set the epoch of the shuffle; see `Shuffle.set_epoch`."""
        self.order.set_epoch(epoch)


class _Iteration:
    """One iteration, with its own order and position."""

    def __init__(self, shuffle: Shuffle, begin: int) -> None:
        self._shuffle, self._order = shuffle, shuffle._order
        self._end = begin
        self._left: Iterator[int] = iter(())

    @property
    def taken(self) -> int:
        """Number of indices yielded so far, both before and during this iteration."""
        return self._end - operator.length_hint(self._left)

    def chunks(self, size: int) -> Iterator[Iterator[int]]:
        """Yield iterators over `size` numbers. Exhaust each one before requesting the next."""
        for at in range(self._end, len(self._shuffle), size):
            steps = self._shuffle._steps[at : at + size]
            numbers = array("q", bytes(8 * len(steps)))
            self._shuffle._fill(self._order, steps, memoryview(numbers))
            self._end, self._left = at + len(steps), iter(numbers.tolist())
            yield self._left


def _unsigned(name: str, value: SupportsIndex, bits: int = 64) -> int:
    """Return an unsigned `bits`-bit int. Raise ValueError if it is out of range, TypeError if it is not an integer."""
    number = operator.index(value)
    if not 0 <= number < 2**bits:
        raise ValueError(f"{name} must be from 0 to 2**{bits} - 1, not {number}")
    return number
