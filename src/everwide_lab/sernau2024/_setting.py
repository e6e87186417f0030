"""How large the experiment is."""

from dataclasses import dataclass, replace
from typing import Any

from everwide import InputError

from ._arms import Rest
from ._transformer import Shape

_COUNTS = ("layers", "heads", "dim", "context", "batch", "steps", "tuning_steps", "tuning_seeds", "seeds", "text_bytes",
           "test_windows")  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Sizes of the model, of its training and of the comparison. `small()`, `full()` and `quick()` make the usual ones.

    - `widths`: of the MLP blocks. `infinite`: how many of the seeds are run with blocks of infinite width too.
    - `rest`: what trains everything outside the MLP blocks.
    - `tuning_width`: where learning rates are chosen, with `tuning_steps` steps, on the mean of `tuning_seeds` seeds.
    - `text_bytes`: how much of the standard library is read if no file is given.
    - `test_windows`: windows of `context` symbols on which validation and test losses are measured.

    >>> from everwide_lab.sernau2024 import Setting
    >>> Setting.full().layers, Setting.full().dim
    (6, 512)
    """

    widths: tuple[int, ...] = (64, 128, 256, 512)
    seeds: int = 4
    infinite: int = 2
    rest: Rest = Rest.SGD
    steps: int = 1000
    layers: int = 1
    heads: int = 4
    dim: int = 32
    context: int = 16
    batch: int = 8
    tuning_width: int = 128
    tuning_steps: int = 1000
    tuning_seeds: int = 2
    text_bytes: int = 3_000_000
    test_windows: int = 1024

    def __post_init__(self):
        for name in _COUNTS:
            _whole(name, getattr(self, name))
        if not self.widths or list(self.widths) != sorted(set(self.widths)):
            raise InputError(f"widths={self.widths!r}: expected at least one, each once, in ascending order.")
        for width in (*self.widths, self.tuning_width):
            _whole("width", width)
        if not 0 <= self.infinite <= self.seeds:
            raise InputError(f"infinite={self.infinite!r}: expected 0 to seeds={self.seeds}.")
        if self.dim % self.heads:
            raise InputError(f"dim={self.dim} does not divide among heads={self.heads}: expected a multiple.")

    @classmethod
    def small(cls) -> "Setting":
        """Minutes on two cores."""
        return cls()

    @classmethod
    def full(cls) -> "Setting":
        """The model and the steps of the paper. It does not state its widths, its context and its batch."""
        return cls(
            widths=(256, 512, 1024, 2048, 4096),
            infinite=0,
            rest=Rest.ADAM,
            steps=40_000,
            layers=6,
            heads=16,
            dim=512,
            context=256,
            batch=32,
            tuning_width=512,
            tuning_steps=4_000,
            text_bytes=100_000_000,
            test_windows=1024,
        )

    @classmethod
    def quick(cls) -> "Setting":
        """Seconds: to see that everything runs. Its numbers say nothing."""
        sizes = cls(widths=(8, 16), seeds=2, infinite=1, steps=20, heads=2, dim=8, batch=4)
        return replace(sizes, tuning_width=8, tuning_steps=20, tuning_seeds=1, text_bytes=200_000, test_windows=16)

    def shape(self, vocabulary: int, width: int) -> Shape:
        """The sizes of one model."""
        return Shape(vocabulary, self.layers, self.heads, self.dim, self.context, width)

    def identity(self) -> dict[str, Any]:
        """What a single run depends on."""
        names = ("layers", "heads", "dim", "context", "batch", "test_windows")
        return {name: getattr(self, name) for name in names} | {"rest": self.rest.value}


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name}={value!r}: expected a whole number, 1 or more.")
