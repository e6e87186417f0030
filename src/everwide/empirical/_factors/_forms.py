"""In which form the Jacobian of each leaf is kept: as it comes, or multiplied out.

With `A` what came in and `B` the cotangents of what came out, a tile is `(A A'^T) * (B B'^T)`, or the product of the
Jacobians `sum_t a_t (x) b_t` themselves. Which one costs less depends on tokens, widths and outputs.
"""

import enum
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..._checks import InputError
from ._contract import Factor, Lookup, Outer, Part, Plain, all_outputs, equal_outputs, right_of, summed_outputs

T = TypeVar("T")
_SMALL = 1 << 12  # parameters; Jacobians below are put side by side, one product for all
_PASS = 32  # multiplications in the time of one number that is read and written
_BATCHED = 4  # many small products are slower than one large one, by about this much


class Outputs(enum.StrEnum):
    """Which pairs of outputs a kernel has.

    - `full`: all of them, `(n1, n2, k, k)`.
    - `trace`: the mean over equal outputs, `(n1, n2)`. It estimates the kernel of an infinitely wide network.
    - `diagonal`: equal outputs, `(n1, n2, k)`.
    - `sum`: the kernel of the sum of all outputs, `(n1, n2)`: all pairs, added.
    """

    FULL = "full"
    TRACE = "trace"
    DIAGONAL = "diagonal"
    SUM = "sum"

    def shape(self, n1: int, n2: int, k: int) -> tuple[int, ...]:
        """Of a kernel, as it is in memory."""
        return {Outputs.FULL: (n1, k, n2, k), Outputs.DIAGONAL: (n1, n2, k)}.get(self, (n1, n2))

    def examples_first(self, kernel: Any) -> Any:
        """A view `(n1, n2, ...)` of a kernel as it is in memory."""
        return kernel.transpose(0, 2, 1, 3) if self is Outputs.FULL else kernel

    def cotangents(self, rows: range, k: int) -> Array:
        """Those rows of the identity (zeros where there are none), or one row of ones."""
        if self is Outputs.SUM:
            return jnp.ones((1, k), jnp.float32)
        return jnp.asarray(np.array(rows)[:, None] == np.arange(k), jnp.float32)


def as_outputs(outputs: Any) -> Outputs:
    """Which pairs of outputs, from their name."""
    if not isinstance(outputs, str) or outputs not in set(Outputs):
        raise InputError(f"outputs={outputs!r}: expected one of {', '.join(map(repr, map(str, Outputs)))}.")
    return Outputs(outputs)


class Form(enum.Enum):
    """How an outer product is kept."""

    FACTORS = "factors"
    PRODUCT = "product"


class Job(NamedTuple):
    """What is to be computed.

    - `rows`, `columns`: examples in all, on both sides.
    - `groups`: the kernel that each leaf belongs to.
    """

    rows: int
    columns: int
    outputs: Outputs
    groups: tuple[tuple[str, str], ...]


class Recipe(NamedTuple):
    """What compiled code depends on: not the number of examples, but what was decided for it."""

    groups: tuple[tuple[str, str], ...]
    forms: tuple[Form, ...]


Ready = dict[str, tuple[Factor, ...]]


def decide(parts: tuple[Part, ...], job: Job) -> Recipe:
    """A form for each cluster of factors that share their cotangents."""
    clusters = (cluster for some in _clusters(parts, job.groups).values() for cluster in some)
    return Recipe(job.groups, tuple(_form(cluster, job) for cluster in clusters))


def ready(parts: tuple[Part, ...], recipe: Recipe) -> Ready:
    """The factors of every group of leaves, in the form in which they are contracted."""
    forms = iter(recipe.forms)
    dtypes = (jnp.finfo(right_of(part.factor).dtype).dtype for part in parts)
    dtype = functools.reduce(np.promote_types, dtypes, np.dtype(np.float32))
    clusters = _clusters(parts, recipe.groups)
    return {group: _ready([(cluster, next(forms)) for cluster in some], dtype) for group, some in clusters.items()}


def tile(a: Ready, b: Ready, outputs: Outputs) -> dict[str, Array]:
    """A tile of every kernel; `full` as `(n1, k, n2, k)`."""
    return {group: _total(a[group], b[group], outputs) for group in a if a[group]}


def own_tile(strips: list[Ready], outputs: Outputs) -> dict[str, Array]:
    """The tile of a block with itself, given in strips; one half is computed, and it is bitwise symmetric."""
    return {group: _symmetric([strip[group] for strip in strips], outputs) for group in strips[0] if strips[0][group]}


def strips(factors: Any, n: int, count: int) -> list[Any]:
    """Factors of `n` examples in strips."""
    cuts = [round(i * n / count) for i in range(count + 1)]
    cut = []
    for i, j in itertools.pairwise(cuts):
        once: dict[int, Array] = {}  # what factors share, they share in every strip
        cut.append(jax.tree.map(lambda a, i=i, j=j, once=once: once.setdefault(id(a), a[i:j]), factors))
    return cut


def inside(factor: Factor, outputs: Outputs) -> int:
    """Numbers that exist only while a tile is computed."""
    if isinstance(factor, Plain):
        return 0
    n, k, *some, tokens, width = factor.right.shape
    groups = math.prod(some)  # a table has none
    inner = n * n * tokens * tokens
    if outputs is not Outputs.FULL or k == 1:
        return 2 * inner * (groups if tokens == 1 else 1) * (k if outputs is Outputs.DIAGONAL else 1)
    return 0 if tokens == 1 and groups == 1 else inner + n * n * k * width * (groups if tokens == 1 else tokens)


def _total(a: tuple[Factor, ...], b: tuple[Factor, ...], outputs: Outputs) -> Array:
    pair = {Outputs.FULL: all_outputs, Outputs.DIAGONAL: equal_outputs}.get(outputs, summed_outputs)
    return functools.reduce(jnp.add, (_paired(pair, f, g) for f, g in zip(a, b, strict=True)))


def _paired(pair: Callable[[Factor, Factor], Array], a: Factor, b: Factor) -> Array:
    kernel = pair(a, jax.tree.map(jnp.conj, b))  # which leaves real numbers as they are
    return kernel.real if not isinstance(a, Plain) and a.real_part else kernel


def _symmetric(strips: list[tuple[Factor, ...]], outputs: Outputs) -> Array:
    full, numbers = outputs is Outputs.FULL, range(len(strips))
    tiles = {(i, j): _total(strips[i], strips[j], outputs) for i in numbers for j in range(i + 1)}

    def place(i: int, j: int) -> Array:
        half = tiles[max(i, j), min(i, j)]
        mirror = jnp.conj(half.transpose(2, 3, 0, 1) if full else half.swapaxes(0, 1))
        if i == j:  # rounding may differ between the halves
            return jnp.where(_lower(half.shape, outputs), half, mirror)
        return half if j < i else mirror

    rows = [jnp.concatenate([place(i, j) for j in numbers], 2 if full else 1) for i in numbers]
    return jnp.concatenate(rows, 0)


def _lower(shape: tuple[int, ...], outputs: Outputs) -> Array:
    """The lower half of a tile of a strip with itself."""
    if outputs is Outputs.FULL:
        return jnp.tri(shape[0] * shape[1], dtype=bool).reshape(shape)
    return jnp.tri(shape[0], dtype=bool).reshape(*shape[:2], *(1,) * (len(shape) - 2))


def _clusters(parts: tuple[Part, ...], groups: tuple[tuple[str, str], ...]) -> dict[str, list[list[Factor]]]:
    """Factors whose cotangents are one and the same array, in one group, stand together: a weight and its bias."""
    group_of = dict(groups)
    clusters: dict[str, dict[int, list[Factor]]] = {group: {} for group in group_of.values()}
    for i, part in enumerate(parts):
        key = id(part.factor.right) if isinstance(part.factor, Outer) else -1 - i
        clusters[group_of[part.names[0]]].setdefault(key, []).append(part.factor)
    return {group: list(some.values()) for group, some in clusters.items()}


def _ready(clusters: list[tuple[list[Factor], Form]], dtype: np.dtype) -> tuple[Factor, ...]:
    """The factors of one group."""
    kept: list[Factor] = []
    products: list[Array] = []
    for cluster, form in clusters:
        if form is Form.FACTORS and not isinstance(cluster[0], Plain):
            kept.append(_cast(_merged(cluster), dtype))
        else:
            products += [_cast(multiplied_out(factor), dtype) for factor in cluster]
    small = [array for array in products if array.shape[-1] <= _SMALL]
    large = [array for array in products if array.shape[-1] > _SMALL]
    side_by_side = [jnp.concatenate(small, -1)] if len(small) > 1 else small
    return (*kept, *map(Plain, (*large, *side_by_side)))


def _merged(cluster: list[Factor]) -> Factor:
    """Weights with a common output as one weight of all their inputs."""
    lefts = [factor.left for factor in cluster if isinstance(factor, Outer)]
    first = cluster[0]
    if len(cluster) == 1 or not isinstance(first, Outer):
        return first
    return Outer(jnp.concatenate(lefts, -1), first.right, first.real_part)


def _cast(factor: T, dtype: np.dtype) -> T:
    """Numbers of that precision: real ones, and complex ones."""
    complexes = np.promote_types(dtype, np.complex64)

    def cast(a: Array) -> Array:
        if jnp.iscomplexobj(a):
            return a.astype(complexes)
        return a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a

    return jax.tree.map(cast, factor)


def multiplied_out(factor: Factor) -> Array:
    """The Jacobian `(n, k, size)`; parameters of a weight are in the order groups, outputs, inputs.

    Where complex parameters count as two real ones, both follow each other.
    """
    match factor:
        case Plain():
            return factor.jacobian
        case Lookup():
            jacobian = _scattered(factor)
        case Outer():
            jacobian = jnp.einsum("ngti,nkgto->nkgoi", factor.left, factor.right, precision=lax.Precision.HIGHEST)
    flat = jacobian.reshape(*jacobian.shape[:2], -1)
    return two_reals(flat) if factor.real_part else flat


def two_reals(jacobian: Array) -> Array:
    """With respect to the real and imaginary parts of complex parameters; the signs of the latter do not matter."""
    return jnp.concatenate([jacobian.real, jacobian.imag], -1)


def _scattered(factor: Lookup) -> Array:
    index = jnp.where(factor.indices < 0, factor.rows, factor.indices)  # the last row is thrown away

    def one(index: Array, right: Array) -> Array:
        return jnp.zeros((factor.rows, right.shape[-1]), right.dtype).at[index].add(right, mode="drop")

    return jax.vmap(jax.vmap(one, (None, 0)))(index, factor.right)


def _form(cluster: list[Factor], job: Job) -> Form:
    first = cluster[0]
    if isinstance(first, Plain):
        return Form.PRODUCT
    k, *groups, tokens, outputs = first.right.shape[1:]  # a table has no groups, and every row is one input
    inputs = sum(factor.left.shape[-1] for factor in cluster if isinstance(factor, Outer)) or 1
    parameters = sum(factor.size() for factor in cluster)
    if first.real_part:  # a product of factors takes four real multiplications, one of Jacobians takes two
        parameters //= 2
    return cheaper(Sizes(k, math.prod(groups), tokens, inputs, outputs, parameters), job)


class Sizes(NamedTuple):
    """Of a factor, and the number of its parameters."""

    k: int
    groups: int
    tokens: int
    inputs: int
    outputs: int
    parameters: int


def cheaper(s: Sizes, job: Job) -> Form:
    """The form with fewer multiplications in all."""
    pairs, examples = float(job.rows * job.columns), float(job.rows + job.columns)
    outputs = s.k**2 if job.outputs is Outputs.FULL else s.k
    product = examples * s.k * s.tokens * s.parameters + pairs * outputs * s.parameters
    each = s.groups * s.tokens**2
    spread = each * s.outputs * s.k + s.groups * s.tokens * s.outputs * outputs  # (A A'^T) meets B, then B'
    at_once = each * (s.outputs + 1) * outputs
    factors = pairs * (each * s.inputs + (at_once if job.outputs is not Outputs.FULL else min(at_once, spread)))
    if s.k == 1:  # two large products, and a pass over what they make
        return Form.PRODUCT if product <= factors + (s.tokens > 1) * _PASS * pairs * each else Form.FACTORS
    weight = 1 if s.tokens == 1 else _BATCHED
    return Form.PRODUCT if product <= weight * factors else Form.FACTORS
