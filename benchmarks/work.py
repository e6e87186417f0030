"""The work that is timed: networks, sizes, and what each row should reach."""

from dataclasses import asdict, dataclass, replace

SEED = 2024


@dataclass(frozen=True)
class Net:
    """`depth` times (Dense or 3x3 Conv with `w_std = sqrt 2`, activation), then `end`, then a Dense layer."""

    activation: str = "Relu"
    depth: int = 3
    end: str = ""  # "Flatten" or "GlobalAvgPool": the hidden layers are convolutions

    def question(self) -> dict:
        """In plain types."""
        return asdict(self)


@dataclass(frozen=True)
class Mode:
    """One way to run the incumbent."""

    how: str  # "jit", "plain", or "batch 32": nt.batch with that many examples
    dtype: str

    def __str__(self) -> str:
        return f"{self.how}, {self.dtype}"


@dataclass(frozen=True)
class Row:
    """One line of the table. Times are compared for each entry of the n x n matrices where the two n differ."""

    name: str
    net: Net
    shape: tuple[int, ...]  # of one example
    n_ours: int
    n_theirs: int
    n_trial: int  # examples while the incumbent's modes are tried
    ratio: float  # the incumbent's time over ours, to reach
    floor: float | None = None  # our time over the floor, to stay within
    batches: tuple[int, ...] = ()

    @property
    def dense(self) -> bool:
        """Has a floor."""
        return not self.net.end

    def modes(self, *, quick: bool) -> list[Mode]:
        """The ways to run the incumbent that are tried."""
        hows = ["jit"] if quick else ["jit", "plain", *(f"batch {size}" for size in self.batches)]
        return [Mode(how, dtype) for how in hows for dtype in ("float32", "float64")]

    def quick(self) -> "Row":
        """Small enough to try the script."""
        shrink = 4 if self.dense else 2 if self.n_theirs < 100 else 4
        ours, theirs, trial = (max(2, n // shrink) for n in (self.n_ours, self.n_theirs, self.n_trial))
        return replace(self, n_ours=ours, n_theirs=theirs, n_trial=trial)


def _dense(activation: str, depth: int, ratio: float, floor: float | None = None) -> Row:
    name = f"dense {activation}, depth {depth}"
    return Row(name, Net(activation, depth), (784,), 4000, 4000, 2000, ratio, floor, batches=(500,))


def _conv(end: str, side: int, ours: int, theirs: int, trial: int, ratio: float, batches: tuple[int, ...] = ()) -> Row:
    words = {"Flatten": "flatten", "GlobalAvgPool": "global average pool"}
    name = f"3 x (conv 3x3, Relu), {words[end]}, {side}x{side}"
    return Row(name, Net(end=end), (side, side, 3), ours, theirs, trial, ratio, batches=batches)


ROWS = (
    _dense("Relu", 3, ratio=8, floor=3),
    _dense("Relu", 10, ratio=15, floor=3),
    _dense("Erf", 3, ratio=3),
    _dense("Gelu", 3, ratio=3),
    _conv("Flatten", 16, 256, 256, 128, ratio=3, batches=(16, 64)),
    _conv("GlobalAvgPool", 16, 64, 16, 8, ratio=15),
    _conv("GlobalAvgPool", 32, 32, 6, 2, ratio=40),
)
# A new process to its first kernel; the incumbent only imports.
COLD = (
    Row("cold start, dense Relu, depth 3", Net(), (784,), 256, 0, 0, ratio=1),
    Row("cold start, conv, global average pool, 16x16", Net(end="GlobalAvgPool"), (16, 16, 3), 4, 0, 0, ratio=1),
)


def data(n: int, shape: tuple[int, ...] | list[int], seed: int = SEED):
    """The same numbers on both sides, float32; fewer examples are the first of more."""
    import numpy as np  # here: `run.py` reads this file and stays small, for its size is inherited by the workers

    return np.random.default_rng(seed).standard_normal((n, *shape)).astype(np.float32)
