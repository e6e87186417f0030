"""From what people have to a function of parameters and one example.

Equinox, Flax NNX and PyTorch modules, JAX functions and everwide's own networks come in here. Flax and PyTorch are
never imported: whoever hands over one of their modules has loaded them.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import InputError
from ..kernel import Example, Inputs
from ..layers import AbstractLayer
from ._refusals import refuse_training_equinox, refuse_training_nnx, refuse_training_torch

Function = Callable[[Any, Any], Any]


class Model(NamedTuple):
    """A differentiable function of parameters and of one example, and where to differentiate it.

    - `f(params, x)`: a scalar or a vector, for one example `x` (an array or a pytree).
    - `params`: a pytree of floating-point arrays.
    - `batched(params, xs)`: the same for a batch in one call, where the model is written for batches; else `None`.
    """

    f: Function
    params: PyTree
    batched: Function | None = None


class TorchModel(NamedTuple):
    """A PyTorch module whose parameters that require a gradient are the parameters. It is never changed.

    The module takes a batch, examples first, and returns `(n,)` or `(n, outputs)`.
    """

    module: Any


class Constants:
    """A pytree that may be a static argument of `jax.jit`: equal where structure and values are equal.

    So that a module that is taken apart twice, at two moments of its training, is compiled once.
    """

    def __init__(self, tree: Any):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._mark = (structure, tuple(_fingerprint(leaf) for leaf in leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and self._mark == other._mark

    def __hash__(self) -> int:
        return hash(self._mark)


@dataclass(frozen=True)
class EquinoxCall:
    """`f` of an Equinox module: put it together and call it on one example."""

    static: Constants

    def __call__(self, params: Any, x: Any) -> Any:
        return eqx.combine(params, self.static.tree)(x)


@dataclass(frozen=True)
class NnxCall:
    """`f` of a Flax NNX module: put it together and call it on a batch."""

    graph: Any
    rest: Constants

    def __call__(self, params: Any, xs: Any) -> Any:
        # copies: a module may count its calls (nnx.RNN draws a key), and what it writes belongs to this trace alone
        return _nnx().merge(self.graph, params, self.rest.tree, copy=True)(xs)


@dataclass(frozen=True)
class OneOfBatch:
    """`f` of a model that is written for batches: a batch of one."""

    batched: Function

    def __call__(self, params: Any, x: Any) -> Array:
        out = self.batched(params, jax.tree.map(lambda a: jnp.asarray(a)[None], x))
        shape = getattr(out, "shape", None)
        if shape is None or shape[:1] != (1,):
            came = f"an array of shape {shape}" if shape is not None else type(out).__name__
            raise InputError(
                f"The module was called with a batch of one example and returned {came}, expected an array whose first "
                "axis is the batch of 1. Wrap it in a module that returns that."
            )
        return out[0]


@dataclass(frozen=True)
class NetworkCall:
    """`f` of an everwide network: all outputs of one example, in a row."""

    net: Constants

    def __call__(self, params: Any, x: Any) -> Array:
        return jnp.ravel(self.net.tree.apply(params, as_example(x) if isinstance(x, Inputs) else x))


def as_example(x: Inputs) -> Example:
    """One example, or all of them with an axis in front."""
    return Example(*jax.tree.map(jnp.asarray, (x.x, x.mask, x.graph)))


def as_model(f: Any, params: Any = None) -> Model | TorchModel:
    """Whatever people have, as a model: for functions of this module that take `f, params`, taken apart only once.

    - A JAX function of one example, or an everwide network (`net.apply`, its outputs in a row), with its `params`.
    - An Equinox module that is called on one example: its floating-point arrays are the parameters. Layers that need a
      state are refused, because `module(x)` cannot hand it over.
    - A Flax NNX module, written for batches: its `nnx.Param`s; one example is a batch of one, `module(x[None])[0]`.
    - A PyTorch module, written for batches: its parameters that require a gradient. It is never changed.

    Dropout and batch normalization must be in evaluation mode.

    Args:
        f: A function `f(params, x)`, a network, a module, or a model.
        params: A tree of floating-point arrays; `None` where `f` brings its own.

    Returns:
        The model: its function `f(params, x)` of one example and its `params`, or its PyTorch `module`.

    >>> import equinox as eqx, everwide.empirical as emp, jax
    >>> model = emp.as_model(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    >>> [leaf.shape for leaf in jax.tree.leaves(model.params)]
    [(2, 3), (2,)]

    """
    model = any_model(f, params)
    leaves = [] if isinstance(model, TorchModel) else jax.tree.leaves_with_path(model.params)
    for path, leaf in leaves:
        if jnp.iscomplexobj(leaf):
            raise InputError(
                f"The parameter params{jax.tree_util.keystr(path)} is {leaf.dtype}, expected real numbers: only "
                "empirical_ntk, empirical_ntk_blocks and ntk_block take complex ones. Pass real and imaginary parts, "
                "and put them together in f."
            )
    return model


def any_model(f: Any, params: Any) -> Model | TorchModel:
    """The same, with complex parameters too."""
    if params is not None:
        network = isinstance(f, AbstractLayer)
        return Model(NetworkCall(Constants(f)), _checked(params)) if network else _from_function(f, params)
    if isinstance(f, Model | TorchModel):
        return f
    if _is(f, "torch.nn", "Module"):
        refuse_training_torch(f)
        return TorchModel(f)
    if _is(f, "flax.nnx", "Module") and callable(f):
        refuse_training_nnx(f)
        graph, params, rest = _nnx().split(f, _nnx().Param, ...)
        call = NnxCall(graph, Constants(rest))
        return Model(OneOfBatch(call), _checked(params), call)
    if isinstance(f, eqx.Module) and callable(f) and not isinstance(f, AbstractLayer):
        refuse_training_equinox(f)
        params, static = eqx.partition(f, eqx.is_inexact_array)
        return Model(EquinoxCall(Constants(static)), _checked(params))
    raise _unknown(f)


def _from_function(f: Any, params: Any) -> Model:
    if not callable(f):
        raise InputError(f"f is a {type(f).__name__}, expected a function f(params, x) of one example.")
    try:
        hash(f)
    except TypeError:  # a callable that holds arrays: as this it is equal to itself only
        f = functools.partial(f)
    return Model(f, _checked(params))


def _checked(params: Any) -> Any:
    """Parameters as arrays. What has no derivative is no parameter."""
    leaves, structure = jax.tree.flatten_with_path(params)
    for path, leaf in leaves:
        kind = getattr(leaf, "dtype", type(leaf))
        if not (isinstance(leaf, float | complex) or (eqx.is_array_like(leaf) and jnp.issubdtype(kind, jnp.inexact))):
            raise InputError(
                f"The parameter params{jax.tree_util.keystr(path)} is {kind}, expected floating-point numbers: "
                "nothing else has a tangent kernel. Close over it in f, or split it off with equinox.partition."
            )
    if not leaves:
        raise InputError("There are no parameters: params has no arrays. A tangent kernel needs at least one.")
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for _, leaf in leaves])


def _unknown(f: Any) -> InputError:
    kind = f"{type(f).__module__}.{type(f).__qualname__}"
    if isinstance(f, AbstractLayer):
        hint = "An everwide network needs parameters: pass params=net.init(key, input_shape, width=...)."
    elif type(f).__module__.startswith("flax.linen") or _is(f, "flax.linen", "Module"):
        hint = "Flax Linen: pass f=lambda params, x: module.apply(params, x[None])[0] and params=..."
    else:
        hint = "For a function f(params, x) of one example, pass its params."
    return InputError(
        f"Without params, expected an Equinox, Flax NNX or PyTorch module that can be called, got {kind}. {hint}"
    )


def _fingerprint(leaf: Any) -> Any:
    if not eqx.is_array(leaf) and not isinstance(leaf, np.ndarray):
        return leaf if leaf.__hash__ else id(leaf)
    try:
        data = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        return (leaf.shape, str(leaf.dtype), np.asarray(data).tobytes())
    except jax.errors.TracerArrayConversionError:
        return id(leaf)


def _is(value: Any, library: str, name: str) -> bool:
    """Whether a value is an instance of a class of a library, which need not be installed."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _nnx() -> Any:
    return sys.modules["flax.nnx"]
