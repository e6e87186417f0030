"""First layers that see the columns of a table: how far rows are apart in each, and by how many others."""

import abc
import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._checks import InputError
from .._trees import Hyper, like, name, positive
from ..gaussian import clamp
from ..kernel import Covariance, Example, Kernel
from ..signal import ArchitectureError, Demand, Signal
from ._base import AbstractLayer

_MOST_KNOTS = 256
_CONSTANT = 1e-12  # of the size of a column: below, it does not vary
_EQUAL = 32  # roundings: rows that are nearer than these are taken to be equal
_TRACED_JUMPS = 256  # the most that are drawn for a column where their mean number is not known yet


class Ranks(eqx.Module):
    """Values of columns as shares of the rows below them, straight lines between knots, flat beyond the last ones."""

    knots: Float[Array | np.ndarray, "columns m"]
    shares: Float[Array | np.ndarray, "columns m"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n columns"]) -> "Ranks":
        """Of the rows of a table."""
        x = np.asarray(x, np.float64)
        if x.ndim != 2 or not x.size or not np.isfinite(x).all():
            raise InputError(
                f"x has the shape {x.shape}, expected finite numbers (rows, columns), of each at least one."
            )
        columns = [_knots(column) for column in x.T]
        most = max(len(knots) for knots, _ in columns)
        padded = [[np.pad(a, (0, most - len(a)), mode="edge") for a in pair] for pair in columns]
        return cls(*(np.array(part) for part in zip(*padded, strict=True)))

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " columns"]:
        """Of one row; knots are facts about a table, without derivatives."""
        knots, shares = (lax.stop_gradient(jnp.asarray(a, x.dtype)) for a in (self.knots, self.shares))
        return jax.vmap(jnp.interp)(x, knots, shares)


def _knots(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, counts = np.unique(column, return_counts=True)
    shares = (np.cumsum(counts) - counts / 2) / counts.sum()
    kept = np.unique(np.linspace(0, len(values) - 1, _MOST_KNOTS).astype(int))
    return values[kept], shares[kept]


class Jumps(eqx.Module):
    """Where random functions of a rank change their sign, and the sign that they begin with."""

    places: Float[Array, "columns features jumps"]
    signs: Float[Array, "columns features"]

    def __call__(self, ranks: Float[Array, " columns"]) -> Float[Array, "columns features"]:
        passed = jnp.sum(self.places < ranks[:, None, None], -1)
        return lax.stop_gradient(self.signs) * jnp.where(passed % 2 == 0, 1, -1).astype(self.signs.dtype)


class AbstractColumns(AbstractLayer):
    """A first layer that reads the columns of a table themselves; what it draws is not trained."""

    ranks: eqx.AbstractVar[Ranks]

    @abc.abstractmethod
    def channels(self, width: int) -> int:
        """Of a finite layer in a network of this width."""

    @abc.abstractmethod
    def moments(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """`E[u v]` and `E[(u - v)^2]` of rows `(columns, ...)` that are broadcast against each other."""

    @abc.abstractmethod
    def faults(self) -> None:
        """Raise on numbers that are no such layer."""

    @property
    def columns(self) -> int:
        """How many of them are read."""
        return len(self.ranks.knots)

    def describe(self, signal: Signal) -> Signal:
        self.faults()
        if not signal.is_data or signal.gaussian or signal.sites or signal.channels != self.columns:
            what = f"a signal of the shape {signal.shape}" + ("" if signal.is_data else " that other layers have made")
            raise ArchitectureError(
                f"{name(self)} reads {self.columns} columns of a table as they are, and its input is {what}. Put it "
                f"first, and pass rows of {self.columns} numbers."
            )
        return signal.mixed((), None if signal.width is None else self.channels(signal.width))

    def demand(self, wanted: Demand) -> Demand:
        return replace(wanted, data=True)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        assert k.data1 is not None and k.data2 is not None
        data = {1: k.data1, 2: k.data2}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            nngp, minus = self.moments(data[i], data[j])
            if c.same:
                return replace(c, nngp=nngp)
            own = self.moments(data[i], data[i])[0] + self.moments(data[j], data[j])[0]
            minus = jnp.where(minus < _EQUAL * jnp.finfo(minus.dtype).eps * own, 0, minus)
            return replace(c, nngp=nngp, minus=minus, plus=clamp(own + 2 * nngp, 0.0, jnp.inf))

        channels = None if k.width is None else self.channels(k.width)
        return replace(k.each_with(rule), channels=channels).centred()


class Columns(AbstractColumns):
    """Columns as infinitely many random features of each would show them: what a first layer for tables reads.

    Rows are `z`, columns scaled to mean 0 and variance 1, and `u`, their ranks between 0 and 1. The second moments are
    `S(x, x') = z M M' z' + sum_j w_j exp(-|u_j - u'_j| / length)`.

    A finite layer has `M' z`, and for each column random functions of its rank that jump between two signs, whose mean
    product falls like the exponential; put `Dense` behind it. What it draws is not trained.

    - `centre`, `scale`: `z = (x - centre) * scale`. `ranks`: of the values. `Columns.of(x)` reads them off a table.
    - `metric`: `M`, `(columns, rank)`, or the diagonal of a diagonal one, `(columns,)`.
    - `rank_weights`: `w`, `(columns,)`. `length`: in shares of rows.

    >>> import everwide as ew, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> first = ew.layers.Columns.of(x)
    >>> net = ew.Serial(first, ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1))
    >>> ew.ntk(net, x).shape
    (20, 20)
    """

    centre: Float[Array | np.ndarray, " columns"]
    scale: Float[Array | np.ndarray, " columns"]
    ranks: Ranks
    metric: Float[Array | np.ndarray, "columns *rank"]
    rank_weights: Float[Array | np.ndarray, " columns"]
    length: Hyper = 0.3

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "n columns"],
        metric: Float[Array | np.ndarray, "columns *rank"] | None = None,
        rank_weights: Float[Array | np.ndarray, " columns"] | None = None,
        *,
        length: Hyper = 0.3,
    ) -> "Columns":
        """For the columns of a table; without numbers of its own, all of them weigh the same, and `S(x, x)` is about 1.

        Args:
            x: its rows.
            metric: `(columns, rank)`, or a diagonal `(columns,)`.
            rank_weights: of the kernels of ranks.
            length: of these, in shares of rows.

        Returns:
            A layer; a column that does not vary has the scale 0.
        """
        ranks = Ranks.of(x)
        x = np.asarray(x, np.float64)
        std, even = x.std(0), np.full(x.shape[1], 0.5 / x.shape[1])
        varies = std > _CONSTANT * np.abs(x).max(0)
        scale = varies / np.where(varies, std, 1.0)
        metric = np.sqrt(even) if metric is None else metric
        rank_weights = even if rank_weights is None else rank_weights
        return cls(centre=x.mean(0), scale=scale, ranks=ranks, metric=metric, rank_weights=rank_weights, length=length)

    def faults(self) -> None:
        positive(self, "length", self.length, zero=False)
        d = self.columns
        shapes = {field: np.shape(getattr(self, field)) for field in ("centre", "scale", "rank_weights")}
        wrong = [f"{field} {shape}" for field, shape in shapes.items() if shape != (d,)]
        if np.ndim(self.metric) not in (1, 2) or np.shape(self.metric)[0] != d:
            wrong.append(f"metric {np.shape(self.metric)}")
        if wrong:
            raise ArchitectureError(f"Columns has ranks of {d} columns, and for others: {', '.join(wrong)}.")
        _checked(self, "metric", self.metric, -math.inf)
        _checked(self, "rank_weights", self.rank_weights, 0.0)

    def channels(self, width: int) -> int:
        linear = self.columns if np.ndim(self.metric) == 1 else np.shape(self.metric)[1]
        return linear + self.columns * self._features(width)

    def _features(self, width: int) -> int:
        """Random functions of each rank."""
        return max(1, width // self.columns)

    def _seen(self, x: Array) -> Array:
        """`M' z`, of a row."""
        z = (x - jnp.asarray(self.centre, x.dtype)) * jnp.asarray(self.scale, x.dtype)
        metric = jnp.asarray(self.metric, x.dtype)
        return z * metric if metric.ndim == 1 else z @ metric

    def sample(self, key: Array, signal: Signal) -> Jumps:
        self.describe(signal)
        features = self._features(_width(self, signal))
        return _jumps(key, 0.5 / jnp.full(self.columns, self.length), features)

    def forward(self, params: Jumps, example: Example) -> Example:
        steps = params(self.ranks(example.x))
        seen, (columns, features) = self._seen(example.x), steps.shape
        channels = len(seen) + columns * features  # second moments are means over them
        sizes = jnp.sqrt(jnp.asarray(self.rank_weights, seen.dtype) * (channels / features))
        values = jnp.concatenate([seen * math.sqrt(channels), (steps * sizes[:, None]).reshape(-1)])
        return example.with_values(values)

    def moments(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        seen1, seen2 = (_over_rows(self._seen, x) for x in (x1, x2))
        near, far = jnp.sum(seen1 * seen2, 0), jnp.sum((seen1 - seen2) ** 2, 0)
        u1, u2 = (_over_rows(self.ranks, x) for x in (x1, x2))
        weights, length = jnp.asarray(self.rank_weights, near.dtype), like(self.length, near)

        def add(total: tuple[Array, Array], column: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            weight, a, b = column
            less = -jnp.expm1(-jnp.abs(a - b) / length)
            return (total[0] + weight * (1 - less), total[1] + 2 * weight * less), None

        return lax.scan(add, (near, far), (weights, u1, u2))[0]


class Trees(AbstractColumns):
    """Infinitely many random trees: how probable it is that no cut falls between two rows.

    Each tree cuts each column at random ranks; `S(x, x') = exp(-sum_j rates_j |u_j - u'_j|)` is the share of trees that
    have two rows in one leaf. A finite layer has the products over columns of random signs that change at the cuts.

    - `ranks`: of the values, as in `Trees.of(x)`. `rates`: mean numbers of cuts, `(columns,)`.

    >>> import everwide as ew, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> net = ew.Serial(ew.layers.Trees.of(x, rates=np.ones(3)), ew.Dense(1))
    >>> float(ew.nngp(net, x)[0, 0])
    1.0
    """

    ranks: Ranks
    rates: Float[Array | np.ndarray, " columns"]

    @classmethod
    def of(
        cls, x: Float[np.ndarray, "n columns"], rates: Float[Array | np.ndarray, " columns"] | None = None
    ) -> "Trees":
        """For the columns of a table.

        Args:
            x: its rows.
            rates: mean numbers of cuts in each column; three in all unless said.

        Returns:
            A layer.
        """
        ranks = Ranks.of(x)
        return cls(ranks, np.full(len(ranks.knots), 3 / len(ranks.knots)) if rates is None else rates)

    def faults(self) -> None:
        if np.shape(self.rates) != (self.columns,):
            raise ArchitectureError(f"Trees has ranks of {self.columns} columns, and rates {np.shape(self.rates)}.")
        _checked(self, "rates", self.rates, 0.0)

    def channels(self, width: int) -> int:
        return width

    def sample(self, key: Array, signal: Signal) -> Jumps:
        self.describe(signal)
        return _jumps(key, 0.5 * jnp.asarray(self.rates), _width(self, signal))

    def forward(self, params: Jumps, example: Example) -> Example:
        return example.with_values(jnp.prod(params(self.ranks(example.x)), 0))

    def moments(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        u1, u2 = (_over_rows(self.ranks, x) for x in (x1, x2))
        rates = jnp.asarray(self.rates, u1.dtype)

        def add(total: Array, column: tuple[Array, Array, Array]) -> tuple[Array, None]:
            rate, a, b = column
            return total + rate * jnp.abs(a - b), None

        start = jnp.zeros(jnp.broadcast_shapes(u1.shape[1:], u2.shape[1:]), u1.dtype)
        less = -jnp.expm1(-lax.scan(add, start, (rates, u1, u2))[0])
        return 1 - less, 2 * less


def _checked(layer: AbstractColumns, field: str, numbers: Array | np.ndarray, least: float) -> None:
    """Raise on numbers that are not finite or too small (traced ones are not looked at)."""
    if isinstance(numbers, np.ndarray) and not (np.isfinite(numbers) & (numbers >= least)).all():
        bound = "" if math.isinf(least) else f" of at least {least:g}"
        raise ArchitectureError(f"{name(layer)}: {field} must be finite numbers{bound}.")


def _over_rows(fn, x: Array) -> Array:
    """A function of one row, of rows `(columns, ...)`."""
    flat = jax.vmap(fn, 1, 1)(x.reshape(len(x), -1))
    return flat.reshape(len(flat), *x.shape[1:])


def _width(layer: AbstractColumns, signal: Signal) -> int:
    if signal.width is None:
        raise ArchitectureError(f"{name(layer)} has no number of features of its own: pass width= to init.")
    return signal.width


def _jumps(key: Array, rates: Float[Array, " columns"], features: int) -> Jumps:
    """Poisson processes, on average of `rates` jumps from rank 0 to 1."""
    try:
        mean = float(jnp.max(rates))
        most = int(mean + 8 * math.sqrt(mean) + 8)
    except jax.errors.ConcretizationTypeError:
        most = _TRACED_JUMPS
    gaps, signs = jr.split(key)
    steps = jr.exponential(gaps, (len(rates), features, most)) / rates[:, None, None]
    return Jumps(jnp.cumsum(steps, -1), jr.rademacher(signs, (len(rates), features)).astype(steps.dtype))
