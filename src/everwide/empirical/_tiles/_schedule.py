"""Which factors are computed when, and which are kept, so that memory stays within its budget."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ..._engine import fitted, require

T = TypeVar("T")
_ROWS = 1024  # examples times outputs in a block: enough for a matrix product to run at full speed
_LARGEST = 512  # examples in a block
_WHOLE = 5120  # rows of a kernel that is computed at once, memory permitting
_STRIP = 64  # rows of a strip, at the least
# Seconds for each multiplication, and for each strip, roughly: on two cores of a CPU.
_MULTIPLY, _STRIPPED = 2e-11, 2e-3


class Block(NamedTuple):
    """Some examples and some outputs: the unit of work. `examples` and `outputs` are slices of the whole."""

    examples: slice
    outputs: slice


class Size(NamedTuple):
    """Examples and outputs of a block; the last ones are padded to it."""

    examples: int
    outputs: int

    def smaller(self) -> "Size":
        """Half of the examples, or of the outputs if there is one example left."""
        if self.examples > 1:
            return Size(-(-self.examples // 2), self.outputs)
        return Size(1, -(-self.outputs // 2))


class Bytes(NamedTuple):
    """What a block needs: to be kept, while it is made, and while it meets another one."""

    kept: int
    made: int
    met: int

    def of(self, blocks: int) -> int:
        """With that many blocks in memory."""
        return blocks * self.kept + max(self.made, self.met)


class Fit(NamedTuple):
    """A size that fits, and how many such blocks may be kept."""

    size: Size
    held: int


def strips_of(rows: int, work: float) -> int:
    """Strips into which a symmetric tile is cut, so that half of it is spared; each makes the compiler work, too."""
    return min(
        (b for b in (1, 2, 3, 4) if b == 1 or rows >= b * _STRIP),
        key=lambda b: work * (b + 1) / (2 * b) * _MULTIPLY + b * _STRIPPED,
    )


def at_once(n: int, k: int) -> bool:
    """Whether a symmetric kernel is small enough to be one block."""
    return n <= _LARGEST and n * k <= _WHOLE


def largest(n: int, k: int) -> Size:
    """Blocks of `n` examples and all `k` outputs that work well."""
    return Size(fitted(n, max(1, min(_LARGEST, _ROWS // k))), k)


def fit(size: Size, room: int, cost: Callable[[Size], Bytes]) -> Fit:
    """The largest blocks, not above `size`, of which two fit into `room` bytes at a time."""
    while True:
        need = cost(size)
        if need.of(2) <= room or size == Size(1, 1):
            break
        size = size.smaller()
    require(
        need.of(2),
        room,
        "The kernel of single examples and single outputs, beside the result,",
        "Pass a larger memory=, use float32, or take fewer parameters: close over the others in f.",
    )
    spare = room - max(need.made, need.met)
    return Fit(size, max(2, spare // max(1, need.kept)))


def blocks(n: int, size: int) -> list[slice]:
    """`n` cut into pieces of that size; the last one may be smaller."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def pairs(
    rows: Sequence[Block], columns: Sequence[Block] | None, held: int, make: Callable[[Block, bool], T]
) -> Iterator[tuple[Block, Block, T, T]]:
    """All pairs of blocks with what `make(block, is_column)` makes of them; without `columns`, every pair once.

    As many rows as may be held are made and kept, then the columns stream past.
    """
    everything = columns is None and held >= len(rows)
    step = len(rows) if everything else max(1, held - 1)
    for start in range(0, len(rows), step):
        yield from _stretch(rows, columns, range(start, min(start + step, len(rows))), make)


def _stretch(
    rows: Sequence[Block], columns: Sequence[Block] | None, held: range, make: Callable[[Block, bool], T]
) -> Iterator[tuple[Block, Block, T, T]]:
    """The pairs of some rows, which are forgotten at the end."""
    kept = {i: make(rows[i], False) for i in held}
    others = rows if columns is None else columns
    for j in range(held.start if columns is None else 0, len(others)):
        second = kept[j] if columns is None and j in kept else make(others[j], columns is not None)
        for i, first in kept.items():
            if columns is not None or i <= j:
                yield rows[i], others[j], first, second


def count(rows: int, columns: int | None) -> int:
    """Number of pairs."""
    return rows * (rows + 1) // 2 if columns is None else rows * columns
