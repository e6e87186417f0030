"""From what people have to a function of parameters and one example.

Equinox, Flax NNX and PyTorch modules, JAX functions and everwide's own networks come in here. Flax and PyTorch are
never imported: whoever hands over one of their modules has loaded them.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..kernel import Example, Inputs
from ..layers import AbstractLayer
from ._refusals import refuse_training_equinox, refuse_training_nnx, refuse_training_torch

Function = Callable[[Any, Any], Any]


class Model(NamedTuple):
    """A differentiable function of parameters and of one example, and where to differentiate it.

    - `f(params, x)`: a scalar or a vector, for one example `x` (an array or a pytree).
    - `params`: a pytree of floating-point arrays.
    - `batched(params, xs)`: the same for a batch in one call, where the model is written for batches; else `None`.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> model = emp.as_model(lambda params, x: params["w"] @ x, {"w": jnp.ones((2, 3))})
    >>> model.f(model.params, jnp.ones(3)).shape
    (2,)
    """

    f: Function
    params: PyTree
    batched: Function | None = None


class TorchModel(NamedTuple):
    """A PyTorch module whose parameters that require a gradient are the parameters. It is never changed.

    The module takes a batch, examples first, and returns `(n,)` or `(n, outputs)`. Made by `from_torch`.

    >>> import everwide.empirical as emp
    >>> from torch import nn  # doctest: +SKIP
    >>> isinstance(emp.as_model(nn.Linear(3, 2)), emp.TorchModel)  # doctest: +SKIP
    True
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
        return _nnx().merge(self.graph, params, self.rest.tree)(xs)


@dataclass(frozen=True)
class OneOfBatch:
    """`f` of a model that is written for batches: a batch of one."""

    batched: Function

    def __call__(self, params: Any, x: Any) -> Array:
        out = self.batched(params, jax.tree.map(lambda a: jnp.asarray(a)[None], x))
        shape = getattr(out, "shape", None)
        if shape is None or shape[:1] != (1,):
            came = f"an array of shape {shape}" if shape is not None else type(out).__name__
            raise ValueError(
                f"The module was called with a batch of one example and returned {came}, expected an array whose first "
                "axis is the batch of 1. Wrap it in a module that returns that."
            )
        return out[0]


@dataclass(frozen=True)
class NetworkCall:
    """`f` of an everwide network: all outputs of one example, in a row."""

    net: Constants

    def __call__(self, params: Any, x: Any) -> Array:
        if isinstance(x, Inputs):
            mask = None if x.mask is None else jnp.asarray(x.mask)
            x = Example(jnp.asarray(x.x), mask, x.graph)
        return jnp.ravel(self.net.tree.apply(params, x))


def as_model(f: Any, params: Any = None) -> Model | TorchModel:
    """Whatever people have, as a model.

    With `params`, `f` is a JAX function `f(params, x)` of one example or an everwide network. Without, it is an
    Equinox, Flax NNX or PyTorch module, which brings its parameters along, or a `Model`.

    >>> import equinox as eqx, everwide.empirical as emp, jax
    >>> model = emp.as_model(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    >>> [leaf.shape for leaf in jax.tree.leaves(model.params)]
    [(2, 3), (2,)]
    """
    if params is not None:
        return from_network(f, params) if isinstance(f, AbstractLayer) else _from_function(f, params)
    if isinstance(f, Model | TorchModel):
        return f
    for is_one, convert in ((_is_torch, from_torch), (_is_nnx, from_nnx), (_is_equinox, from_equinox)):
        if is_one(f):
            return convert(f)
    raise _unknown(f)


def from_equinox(module: Any) -> Model:
    """An Equinox module that is called on one example. Its floating-point arrays are the parameters.

    Dropout and batch normalization must be in inference mode (`equinox.nn.inference_mode`); layers that need a state
    are refused, because `module(x)` cannot hand it over.

    >>> import equinox as eqx, everwide.empirical as emp, jax
    >>> model = emp.from_equinox(eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0)))
    """
    if not _is_equinox(module):
        raise TypeError(f"from_equinox expects an equinox.Module that can be called, got {type(module).__name__}.")
    refuse_training_equinox(module)
    params, static = eqx.partition(module, eqx.is_inexact_array)
    return Model(EquinoxCall(Constants(static)), _checked(params))


def from_nnx(module: Any) -> Model:
    """A Flax NNX module. Its `nnx.Param`s are the parameters.

    Flax modules are written for batches, so one example is a batch of one: `module(x[None])[0]`. Dropout and batch
    normalization must be in evaluation mode (`module.eval()`).

    >>> import everwide.empirical as emp
    >>> from flax import nnx  # doctest: +SKIP
    >>> model = emp.from_nnx(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))  # doctest: +SKIP
    """
    if not _is_nnx(module):
        raise TypeError(f"from_nnx expects a flax.nnx.Module, got {type(module).__name__}.")
    refuse_training_nnx(module)
    graph, params, rest = _nnx().split(module, _nnx().Param, ...)
    call = NnxCall(graph, Constants(rest))
    return Model(OneOfBatch(call), _checked(params), call)


def from_torch(module: Any) -> TorchModel:
    """A PyTorch module. Its parameters that require a gradient are the parameters; the others are constants.

    The module takes a batch, examples first. Dropout and batch normalization must be in evaluation mode
    (`module.eval()`). The module is never changed.

    >>> import everwide.empirical as emp
    >>> from torch import nn  # doctest: +SKIP
    >>> model = emp.from_torch(nn.Linear(3, 2))  # doctest: +SKIP
    """
    if not _is_torch(module):
        raise TypeError(f"from_torch expects a torch.nn.Module, got {type(module).__name__}.")
    refuse_training_torch(module)
    return TorchModel(module)


def from_network(net: AbstractLayer, params: Any) -> Model:
    """An everwide network of finite width: `net.apply`, its outputs in a row.

    Examples are arrays, or `everwide.Inputs` with masks and graphs.

    >>> import everwide as ew, everwide.empirical as emp, jax
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(2))
    >>> model = emp.from_network(net, net.init(jax.random.key(0), (3,), width=8))
    """
    return Model(NetworkCall(Constants(net)), _checked(params))


def _from_function(f: Any, params: Any) -> Model:
    if not callable(f):
        raise TypeError(f"f is a {type(f).__name__}, expected a function f(params, x) of one example.")
    try:
        hash(f)
    except TypeError:  # a callable that holds arrays; as a closure it is equal to itself
        called = f
        f = lambda params, x: called(params, x)
    return Model(f, _checked(params))


def _checked(params: Any) -> Any:
    """Parameters as arrays. What has no derivative is no parameter."""
    leaves, structure = jax.tree.flatten_with_path(params)
    for path, leaf in leaves:
        kind = getattr(leaf, "dtype", type(leaf))
        if not (isinstance(leaf, float) or (eqx.is_array_like(leaf) and jnp.issubdtype(kind, jnp.floating))):
            raise TypeError(
                f"The parameter params{jax.tree_util.keystr(path)} is {kind}, expected real floating-point numbers: "
                "nothing else has a tangent kernel. Close over it in f, or split it off with equinox.partition."
            )
    if not leaves:
        raise ValueError("There are no parameters: params has no arrays. A tangent kernel needs at least one.")
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for _, leaf in leaves])


def _unknown(f: Any) -> TypeError:
    kind = f"{type(f).__module__}.{type(f).__qualname__}"
    if isinstance(f, AbstractLayer):
        hint = "An everwide network needs parameters: pass params=net.init(key, input_shape, width=...)."
    elif type(f).__module__.startswith("flax.linen") or _is(f, "flax.linen", "Module"):
        hint = "Flax Linen: pass f=lambda params, x: module.apply(params, x[None])[0] and params=..."
    else:
        hint = "For a function f(params, x) of one example, pass its params."
    return TypeError(
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


def _is_torch(value: Any) -> bool:
    return _is(value, "torch.nn", "Module")


def _is_nnx(value: Any) -> bool:
    return _is(value, "flax.nnx", "Module") and callable(value)


def _is_equinox(value: Any) -> bool:
    return isinstance(value, eqx.Module) and not isinstance(value, AbstractLayer) and callable(value)


def _nnx() -> Any:
    return sys.modules["flax.nnx"]
