"""Learning from a stream: every batch is seen once, and the function grows by its rows."""

import collections
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._checks import InputError, warn, whole
from .._engine import as_rows, trusted_filter_jit, trusted_jit
from .._losses import Loss, as_loss
from ..kernel import AbstractKernelFunction
from ._kernels import Element, map_elements, unvalued
from ._optimizers import as_optimizer
from ._setup import DivergenceWarning
from ._stream import Move, Rules, Weights, pivots, plain_kernel, projected, relative_error, rounding

_FIRST_CAPACITY = 128  # also the fewest rows that a step touches: fewer shapes to compile
_PREDICTED_TOGETHER = 256
_FORMAT = 2


class Cost(NamedTuple):
    """Evaluations of the kernel, and seconds, of all steps so far."""

    evaluations: int
    seconds: float


class KernelMachine:
    """An infinitely wide network that learns from a stream, one step a batch: `f(x) = f0(x) + sum_i k(x, x_i) a_i`.

    - `kernel`: an `everwide.Infinite`, of which `which` names the kernel; or any JAX function `k(x1, x2) -> (n1, n2)`.
    - `loss`, `optimizer`: as in `everwide.training.train`. Without `l2`.
    - `outputs`: how many. A stream does not tell how many classes will come.
    - `f0`: the function before training, `(n, ...) -> (n, outputs)`; 0 if not given.
    - `budget`: the largest number of rows to keep. Beyond it the function is projected to fewer rows;
      `compression_error` says what that cost.

    The first batch decides the precision, float32 or float64. A step evaluates the kernel of its batch with all rows
    that are kept. A row's coefficient moves as long as the optimizer's memory of it exceeds rounding, and is then left
    alone: this is exact to rounding for any number of steps, where the formula in closed form is not.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> kernel = ew.Infinite(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), (2,))
    >>> machine = tr.KernelMachine(kernel, tr.SoftmaxCrossEntropy(), tr.AdamStar(0.1), outputs=2)
    >>> machine.predict(x[:3]).shape  # zeros, before the first batch
    (3, 2)
    >>> for rows in np.split(np.arange(60), 6):
    ...     machine = machine.partial_fit(x[rows], (x[rows, 0] > 0).astype(int))
    >>> machine.steps, machine.support.shape
    (6, (60, 2))

    Sernau, "Infinite width models that work" (2024), equation 4 and theorem 2.
    """

    def __init__(
        self,
        kernel: AbstractKernelFunction | Callable[[Any, Any], Any],
        loss: Loss,
        optimizer: Any,
        *,
        outputs: int,
        budget: int | None = None,
        which: str = "ntk",
        f0: Callable[[Any], Any] | None = None,
    ):
        rule = as_optimizer(optimizer)
        rule.memory_length(np.dtype(np.float64))  # optimizers that do not fit are refused here
        self._outputs, self._which = whole(outputs, "outputs"), which
        self._budget = None if budget is None else whole(budget, "budget", 2)
        self._rules = Rules(*plain_kernel(kernel, which), f0, as_loss(loss), rule)
        self._x: Array | None = None
        self._weights: Weights | None = None
        self._size, self._error, self._cost = 0, 0.0, Cost(0, 0.0)
        self._recent: collections.deque[int] = collections.deque()

    @property
    def steps(self) -> int:
        """Steps so far."""
        return 0 if self._weights is None else int(self._weights.step)

    @property
    def support(self) -> np.ndarray:
        """`(rows, ...)`: the rows that the function is made of."""
        if self._x is None:
            return np.zeros((0, *(self._rules.shape or (0,))))
        with jax.enable_x64(self._x.dtype == np.float64):  # a copy: the rows themselves are written in place
            return np.asarray(jnp.array(self._x, copy=True))[: self._size]

    @property
    def coefficients(self) -> np.ndarray:
        """`(rows, outputs)`: of those rows."""
        if self._weights is None:
            return np.zeros((0, self._outputs))
        return np.asarray(self._weights.coefficients)[: self._size]

    @property
    def compression_error(self) -> float:
        """`|f - g| / |f|` of the worst projection so far, in the norm of the kernel's own space; 0 before the first."""
        return self._error

    @property
    def cost(self) -> "Cost":
        """What all steps so far took: `evaluations` of the kernel, `seconds`. A stream of `t` rows takes `O(t^2)`."""
        return self._cost

    def partial_fit(self, x: Any, y: Any) -> "KernelMachine":
        """One step on one batch, rows `(n, ...)` and their targets; returns the machine itself."""
        rows = self._checked(x)
        targets, _ = self._rules.loss.targets(y, self._outputs)
        if len(targets) != len(rows):
            raise InputError(f"y has {len(targets)} rows and x {len(rows)}: they must agree.")
        with jax.enable_x64(rows.dtype == np.float64):
            if not self._size:
                self._begin(rows)
            labels = np.issubdtype(targets.dtype, np.integer)
            begin, evaluations = time.perf_counter(), self._cost.evaluations + len(rows) * (self._size + len(rows))
            self._step(rows, targets if labels else targets.astype(rows.dtype))
            self._cost = Cost(evaluations, self._cost.seconds + time.perf_counter() - begin)
            if self._budget is not None and self._size > self._budget:
                self._compress(self._budget - self._budget // 4)
        return self

    def predict(self, x: Any) -> np.ndarray:
        """Outputs `(n, outputs)`; those of `f0`, or zeros, before the first batch."""
        rows = self._checked(x)
        with jax.enable_x64(rows.dtype == np.float64):
            if not self._size:
                zeros = np.zeros((len(rows), self._outputs), rows.dtype)
                return zeros + np.asarray(self._rules.first(jnp.asarray(rows)), rows.dtype)
            x, weights = self._held()
            return self._in_pieces(rows, lambda piece: _outputs(self._rules, weights, x, piece))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Everything but the kernel, the loss and the optimizer, in one file, which is never seen half written."""
        head = {
            "format": _FORMAT,
            "optimizer": type(self._rules.optimizer).__name__,
            "outputs": self._outputs,
            "budget": self._budget,
            "which": self._which,
            "started_elsewhere": self._rules.f0 is not None,
            "size": self._size,
            "capacity": 0 if self._x is None else len(self._x),
            "recent": list(self._recent),
            "compression_error": self._error,
            "cost": self._cost,
        }
        arrays = {"head": np.array(json.dumps(head))}
        if self._size:
            arrays["x"] = self.support
            leaves = jax.tree.leaves(self._weights)
            arrays |= {f"weights_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        write_whole(Path(path), arrays)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        kernel: AbstractKernelFunction | Callable[[Any, Any], Any],
        loss: Loss,
        optimizer: Any,
        *,
        f0: Callable[[Any], Any] | None = None,
    ) -> "KernelMachine":
        """The machine that was saved, given what it was made of: it goes on as if it had never stopped.

        >>> import everwide.training as tr, numpy as np, tempfile
        >>> parts = (lambda a, b: a @ b.T, tr.Mse(), tr.SGD(0.1))
        >>> machine = tr.KernelMachine(*parts, outputs=1).partial_fit(np.eye(3), np.ones(3))
        >>> file = tempfile.mkdtemp() + "/machine.npz"
        >>> machine.save(file)
        >>> tr.KernelMachine.restore(file, *parts).steps
        1
        """
        with np.load(path) as file:
            head = json.loads(str(file["head"]))
            _check_head(head, as_optimizer(optimizer), f0)
            options = {name: head[name] for name in ("outputs", "budget", "which")}
            machine = cls(kernel, loss, optimizer, f0=f0, **options)
            if head["size"]:
                machine._fill(head, file)
        return machine

    def _fill(self, head: dict[str, Any], file: Any) -> None:
        x = file["x"]
        with jax.enable_x64(x.dtype == np.float64):
            self._begin(x)
            self._x = _padded(x, head["capacity"])
            tree = jax.tree.structure(self._weights)
            leaves = [jnp.asarray(file[f"weights_{i}"]) for i in range(tree.num_leaves)]
            self._weights = jax.tree.unflatten(tree, leaves)
        self._size, self._error, self._cost = head["size"], head["compression_error"], Cost(*head["cost"])
        self._recent.extend(head["recent"])

    def _checked(self, x: Any) -> np.ndarray:
        rows = as_rows(x)
        if rows.mask is not None or rows.graph is not None:
            raise InputError("A KernelMachine takes arrays of rows. For masks and graphs: everwide.gram, then train.")
        held = self._x if self._size else None
        shape = self._rules.shape if held is None else held.shape[1:]
        if shape is not None and rows.x.shape[1:] != shape:
            known = "its kernel takes" if held is None else "this machine has learned from"
            raise InputError(f"x holds rows of shape {rows.x.shape[1:]}, but {known} rows of shape {shape}.")
        return rows.x if held is None else rows.x.astype(held.dtype, copy=False)

    def _begin(self, rows: np.ndarray) -> None:
        zeros = jnp.zeros((_FIRST_CAPACITY, self._outputs), rows.dtype)
        zero = unvalued(zeros, zeros[0])
        memory = self._rules.optimizer.transform().init(zero)
        self._weights = Weights(zero.coefficients, jnp.ones_like(zero.start), memory, jnp.asarray(0, jnp.int32))
        self._x = _padded(rows[:1], _FIRST_CAPACITY)
        self._recent = collections.deque(maxlen=self._rules.optimizer.memory_length(rows.dtype))

    def _step(self, rows: np.ndarray, y: np.ndarray) -> None:
        n, padded, live = len(rows), at_least(len(rows)), sum(self._recent)
        x, weights = self._with_room(self._size + padded)
        index = np.minimum(np.arange(padded), n - 1)  # shapes are few; rows of padding count for nothing
        shares = np.where(np.arange(padded) < n, 1 / n, 0).astype(rows.dtype)
        at, live_from = (np.asarray(row, np.int32) for row in (self._size, self._size - live))
        window = min(len(x), max(_FIRST_CAPACITY, at_least(live + padded)))
        move = Move(rows[index], y[index], shares, at, live_from)
        self._weights, fine = _advanced(self._rules, weights, x, move, window)
        if not bool(fine):
            self._warn_of_divergence()
            return
        self._x = _written(x, move.x, at)
        self._size += n
        self._recent.append(n)

    def _with_room(self, rows: int) -> tuple[Array, Weights]:
        x, weights = self._held()
        if rows > len(x):
            x, weights = _padded(x, at_least(rows)), _grown(weights, at_least(rows))
            self._x, self._weights = x, weights
        return x, weights

    def _held(self) -> tuple[Array, Weights]:
        assert self._x is not None and self._weights is not None
        return self._x, self._weights

    def _warn_of_divergence(self) -> None:
        warn(
            f"Training diverged at step {self.steps + 1}: coefficients are no longer finite. The batch is left out. "
            "Lower the rate of the optimizer.",
            DivergenceWarning,
        )

    def _compress(self, most: int) -> None:
        """Project to at most that many rows; those with momentum stay if they leave room, or it is projected too."""
        (x, weights), n, live = self._held(), self._size, sum(self._recent)
        gram = self._in_pieces(self.support, lambda piece: _cross(self._rules, piece, x))[:, :n]
        gram = (gram + gram.T).astype(np.float64) / 2
        noise = rounding(gram, x.dtype)
        kept = live if live <= most // 2 else 0
        chosen = pivots(gram, kept, most, noise)
        coefficients, capacity = np.asarray(weights.coefficients, np.float64)[:n], len(weights.coefficients)

        def project(a: Any) -> np.ndarray:
            return projected(gram, chosen, np.asarray(a, np.float64)[:n], noise)

        def shorter(e: Element) -> Element:
            """Exact where rows with momentum are kept: no others have any."""
            new = np.asarray(e.coefficients)[chosen] if kept or not live else project(e.coefficients)
            return e._replace(coefficients=_fitted(new, weights.coefficients, capacity))

        new = project(coefficients)
        self._error = max(self._error, relative_error(gram, coefficients, chosen, new))
        memory = map_elements(shorter, weights.memory)
        self._weights = weights._replace(coefficients=_fitted(new, weights.coefficients, capacity), memory=memory)
        self._x = _padded(self.support[chosen], len(x))
        self._size = len(chosen)
        if live and not kept:
            self._recent.clear()
            self._recent.append(self._size)

    def _in_pieces(self, rows: np.ndarray, fn: Callable[[Array], Array]) -> np.ndarray:
        """Some rows at a time, in few different numbers."""
        size = min(at_least(len(rows)), _PREDICTED_TOGETHER)
        pieces = []
        for begin in range(0, len(rows), size):
            index = np.minimum(np.arange(begin, begin + size), len(rows) - 1)
            pieces.append(np.asarray(fn(jnp.asarray(rows[index]))))
        return np.concatenate(pieces)[: len(rows)]


@trusted_filter_jit
def _advanced(rules: Rules, weights: Weights, x: Array, move: Move, window: int) -> tuple[Weights, Array]:
    new = rules.advance(weights, x, move, window)
    fine = jnp.all(jnp.isfinite(new.coefficients))
    return jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, weights), fine


@trusted_filter_jit
def _outputs(rules: Rules, weights: Weights, x: Array, at: Array) -> Array:
    return rules.cross(at, x) @ weights.coefficients + weights.start * rules.first(at)


@trusted_filter_jit
def _cross(rules: Rules, a: Array, b: Array) -> Array:
    return rules.cross(a, b)


def _write(x: Array, batch: Array, at: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(x, batch, at, 0)


_written = trusted_jit(_write, donate_argnums=0)  # in place: the rows may be most of the memory


def at_least(n: int) -> int:
    """The next power of two: few shapes are compiled."""
    return 1 << (n - 1).bit_length()


def _padded(x: Any, capacity: int) -> Array:
    """Unused places repeat the first row, at which any kernel is finite."""
    host = np.asarray(x)  # where nothing is compiled for every new shape
    return jnp.asarray(np.concatenate([host, np.broadcast_to(host[:1], (capacity - len(host), *host.shape[1:]))]))


def _fitted(coefficients: Any, like: Array, capacity: int) -> Array:
    short = np.asarray(coefficients).astype(like.dtype)
    return jnp.asarray(np.concatenate([short, np.zeros((capacity - len(short), short.shape[1]), short.dtype)]))


def _grown(weights: Weights, capacity: int) -> Weights:
    def longer(e: Any) -> Any:
        return e._replace(coefficients=_fitted(e.coefficients, e.coefficients, capacity))

    return longer(weights)._replace(memory=map_elements(longer, weights.memory))


def write_whole(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Beside the old file first, then in its place."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def _check_head(head: dict[str, Any], optimizer: Any, f0: Any) -> None:
    if head["format"] != _FORMAT:
        raise InputError(f"The file has format {head['format']}, this version reads {_FORMAT}.")
    if head["optimizer"] != type(optimizer).__name__:
        raise InputError(f"The machine was saved with {head['optimizer']}, not {type(optimizer).__name__}. Pass that.")
    if head["started_elsewhere"] != (f0 is not None):
        raise InputError(f"The machine was saved with{'' if head['started_elsewhere'] else 'out'} an f0. Do the same.")
