"""A kernel of single examples needs a function of single examples: what depends on the batch, or on chance, is refused.

Layers that are known to do so are found by looking at the module; anything else by calling it: twice, and on two
examples together and apart.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError


class BatchDependenceError(InputError):
    """The outputs for one example depend on other examples, or on chance.

    >>> import equinox as eqx, everwide.empirical as emp
    >>> emp.as_model(eqx.nn.Sequential([eqx.nn.Dropout(0.5)]))
    Traceback (most recent call last):
        ...
    everwide.empirical._refusals.BatchDependenceError: Dropout at .layers[0] drops units at random, so that the \
network is another one at each call. Put it in inference mode: equinox.nn.inference_mode(module).
    """


RANDOM = "drops units at random, so that the network is another one at each call"
STATISTICS = "normalizes with the statistics of the batch, so that no example has an output of its own"


def refuse_training_equinox(module: Any) -> None:
    """Raise where an Equinox module is in training mode, or needs a state."""
    way_out = "Put it in inference mode: equinox.nn.inference_mode(module)."
    for path, layer in _equinox_layers(module):
        if isinstance(layer, eqx.nn.Dropout) and not layer.inference and not _is_zero(layer.p):
            raise _refusal(layer, path, RANDOM, way_out)
        if isinstance(layer, eqx.nn.BatchNorm) and not layer.inference:
            raise _refusal(layer, path, STATISTICS, f"{way_out} Then bind its state in f.")
        if isinstance(layer, eqx.nn.StatefulLayer):
            raise InputError(
                f"{type(layer).__name__} at {path} needs a state, which module(x) does not hand over. Bind it: "
                "params, static = equinox.partition(module, equinox.is_inexact_array), and "
                "f = lambda params, x: equinox.combine(params, static)(x, state)[0]."
            )


def refuse_training_nnx(module: Any) -> None:
    """Raise where a Flax NNX module is in training mode."""
    nnx = sys.modules["flax.nnx"]
    way_out = "Put it in evaluation mode: module.eval()."
    for path, layer in nnx.iter_graph(module):
        place = ".".join(str(p) for p in path) or "the top"
        if isinstance(layer, nnx.BatchNorm) and not layer.use_running_average:
            raise _refusal(layer, place, STATISTICS, way_out)
        if isinstance(layer, nnx.Dropout) and not layer.deterministic and not _is_zero(layer.rate):
            raise _refusal(layer, place, RANDOM, way_out)
        if isinstance(layer, nnx.MultiHeadAttention) and not layer.deterministic and not _is_zero(layer.dropout_rate):
            raise _refusal(layer, place, RANDOM, way_out)


def refuse_training_torch(module: Any) -> None:
    """Raise where a PyTorch module is in training mode, or has no parameters that we could differentiate."""
    for path, layer in module.named_modules():
        _refuse_torch_layer(path or "the top", layer)
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not trained:
        raise InputError(
            f"{type(module).__name__} has no parameters that require a gradient, and so no tangent kernel. "
            "Frozen parameters are constants; module.requires_grad_() frees them all."
        )
    for name, p in trained:
        if str(p.dtype) not in ("torch.float32", "torch.float64"):
            raise InputError(f"The parameter {name} is {p.dtype}, expected float32 or float64. Use module.float().")


def _refuse_torch_layer(path: str, layer: Any) -> None:
    nn = sys.modules["torch.nn"]
    way_out = "Put it in evaluation mode: module.eval()."
    batch_norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    dropouts = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    if isinstance(layer, batch_norms):
        if layer.running_mean is None:
            raise _refusal(layer, path, STATISTICS, "Make it with track_running_stats=True, and use module.eval().")
        if layer.training:
            raise _refusal(layer, path, STATISTICS, way_out)
    rate = layer.p if isinstance(layer, dropouts) else 0.0
    if isinstance(layer, nn.MultiheadAttention) or (isinstance(layer, nn.RNNBase) and layer.num_layers > 1):
        rate = layer.dropout
    if layer.training and (rate > 0 or isinstance(layer, nn.RReLU)):
        raise _refusal(layer, path, RANDOM, way_out)
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        option = "max_norm" if layer.max_norm is not None else "scale_grad_by_freq"
        raise InputError(
            f"Embedding({option}=...) at {path} is refused: it "
            + ("changes its weights when it is called" if option == "max_norm" else "returns gradients of nothing")
            + f". Make an Embedding without {option} and copy the weights."
        )


def output_for_one(f: Callable[[Any, Any], Any], params: Any, one: Any) -> Any:
    """What `f` returns for one example, as shapes; raises if it is written for a batch of them."""
    try:
        out, fault = jax.eval_shape(f, params, one), None
    except Exception as error:  # whatever a function of batches does with one example
        out, fault = None, error
    if isinstance(out, jax.ShapeDtypeStruct) and out.ndim <= 1:
        return out
    shapes = [_shape_for_batch(f, params, one, n) for n in (5, 7)]
    if [shape[:1] for shape in shapes] == [(5,), (7,)] and len(shapes[0]) <= 2:
        came = f"fails for one example ({type(fault).__name__})" if fault else "makes more than a vector of one example"
        raise InputError(
            f"f takes a batch, it seems: it {came}, and of n examples it makes (n{_rest(shapes[0])}). Expected "
            "a function of one example. Pass lambda params, x: f(params, x[None])[0]."
        ) from fault
    if fault is not None:
        raise fault
    return out


def _rest(shape: tuple[int, ...]) -> str:
    return "".join(f", {size}" for size in shape[1:]) or ","


def _shape_for_batch(f: Callable[[Any, Any], Any], params: Any, one: Any, n: int) -> tuple[int, ...]:
    """The shape of what `f` makes of `n` examples; empty where it fails, too."""
    batch = jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *jnp.shape(a)), jnp.result_type(a)), one)
    try:
        out = jax.eval_shape(f, params, batch)
    except Exception:
        return ()
    return out.shape if isinstance(out, jax.ShapeDtypeStruct) else ()


def refuse_batch_dependence(model: Any, x: Any) -> None:
    """Raise if the outputs of a model for one example depend on other examples or on chance.

    `model` has `params`, `f(params, one)` and `batched(params, many)`, which may be `None`; `x` is a batch of examples.
    A model of one example is called twice on the first one. A model that is written for batches is called on two
    examples together and apart, too. Dependence that these examples do not show is not found. Inside `jax.jit` there
    are no numbers to compare, and nothing is.
    """
    one = jax.tree.map(lambda a: jnp.asarray(a)[0], x)
    with contextlib.suppress(jax.errors.TracerArrayConversionError):
        if model.batched is not None:
            refuse_mixing(lambda xs: np.asarray(model.batched(model.params, jax.tree.map(jnp.asarray, xs))), x)
        elif not _traces_alike(model.f, model.params, one):
            refuse_chance(lambda: np.asarray(model.f(model.params, one)))


def _traces_alike(f: Callable[[Any, Any], Any], params: Any, one: Any) -> bool:
    """Whether two traces of a function are the same program, which spares to run it. False may be a false alarm."""
    # two functions, both alive: the trace of one is never taken for that of the other
    twice = [lambda params, one: f(params, one) for _ in range(2)]
    first, second = (jax.make_jaxpr(call)(params, one) for call in twice)
    if str(first) != str(second) or len(first.consts) != len(second.consts):
        return False
    return all(a is b or bool(np.array_equal(a, b)) for a, b in zip(first.consts, second.consts, strict=True))


def refuse_chance(call: Callable[[], np.ndarray]) -> None:
    """Raise if two equal calls give different numbers."""
    first, second = call(), call()
    if not _agree(first, second):
        raise BatchDependenceError(
            "Two calls with the same example gave different outputs: the model is random. Put it in evaluation mode, "
            "or fix its randomness (bind a key)."
        )


def refuse_mixing(call: Callable[[Any], np.ndarray], x: Any) -> None:
    """Raise if a function of a batch, examples first, mixes its examples."""
    refuse_chance(lambda: call(_rows(x, [0])))
    pair, real = two_examples(x)
    together = call(pair)
    for i in range(2 if real else 1):
        alone = call(_rows(pair, [i]))
        if alone.shape[1:] != together.shape[1:] or not _agree(together[i], alone[0]):
            raise BatchDependenceError(
                "The outputs of an example change when another example is in the same batch: the model mixes examples, "
                "and no kernel of single examples belongs to it. Batch normalization must be in evaluation mode; "
                "attention and softmax must not run over the axis of the examples."
            )


def refuse_not_finite(kernels: dict[str, np.ndarray], params: Any) -> None:
    """Raise if a kernel holds what is not finite, and name the parameter that is not."""
    for kernel in kernels.values():
        if np.isfinite(kernel).all():
            continue
        i, j, *_ = (int(at) for at in np.argwhere(~np.isfinite(kernel))[0])
        leaves = jax.tree.leaves_with_path(params)
        bad = [jax.tree_util.keystr(path) for path, leaf in leaves if not np.isfinite(np.asarray(leaf)).all()]
        why = "f has no finite derivative there, such as a root or a logarithm at 0, or numbers overflow: try float64."
        why = f"The parameter params{bad[0]} is not finite." if bad else f"A parameter is not finite, or {why}"
        raise InputError(f"The tangent kernel of row {i} of x1 with row {j} of x2 (or of x1) is not finite. {why}")


def refuse_not_holomorphic(f: Callable[[Any, Any], Any], params: Any, one: Any) -> None:
    """Raise unless parameters and outputs are complex, and a step by `i dw` does `i` times what a step by `dw` does."""
    for path, leaf in jax.tree.leaves_with_path(params):
        if not jnp.iscomplexobj(leaf):
            raise InputError(
                f"holomorphic=True: the parameter params{jax.tree_util.keystr(path)} is {leaf.dtype}, expected complex "
                "ones only. Leave holomorphic out: real parameters have a kernel of real and imaginary parts."
            )
    step = jax.tree.map(
        lambda p: jnp.cos(jnp.arange(p.size, dtype=p.real.dtype)).reshape(p.shape).astype(p.dtype), params
    )
    turned = jax.tree.map(lambda s: s * jnp.asarray(1j, s.dtype), step)
    y, straight = jax.jvp(lambda p: f(p, one), (params,), (step,))
    if not jnp.iscomplexobj(y):
        raise InputError(f"holomorphic=True: f returns {y.dtype}, expected complex numbers. Leave holomorphic out.")
    around = jax.jvp(lambda p: f(p, one), (params,), (turned,))[1]
    if not _agree(np.asarray(around), np.asarray(1j * np.asarray(straight))):
        raise InputError(
            "holomorphic=True: f has no complex derivative with respect to its parameters: it takes conjugates, "
            "absolute values, real or imaginary parts. Leave holomorphic out: the kernel then has blocks of both parts."
        )


def two_examples(x: Any) -> tuple[Any, bool]:
    """Two different examples of a batch, and whether both are real: if all are equal, the second one is made up."""
    leaves = [np.asarray(a) for a in jax.tree.leaves(x)]
    different = np.any([(a != a[:1]).reshape(len(a), -1).any(1) for a in leaves], 0)
    if different.any():
        return _rows(x, [0, int(np.argmax(different))]), True
    return jax.tree.map(lambda a: np.stack([np.asarray(a)[0], _altered(np.asarray(a)[0])]), x), False


def _altered(a: np.ndarray) -> np.ndarray:
    """Another example from the same set of values."""
    moved = np.roll(a.ravel(), 1).reshape(a.shape)
    return moved if not np.issubdtype(a.dtype, np.floating) else (moved * 0.5 + 0.25).astype(a.dtype)


def _rows(x: Any, index: list[int]) -> Any:
    return jax.tree.map(lambda a: np.asarray(a)[index], x)


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to the rounding of a deep network; half of the digits are more than it takes."""
    tolerance = float(np.sqrt(np.finfo(np.result_type(a.dtype, np.float32)).eps))
    size = float(np.nan_to_num(np.abs(a), posinf=0).max(initial=0.0))
    return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=tolerance * size, equal_nan=True)


def _equinox_layers(module: Any) -> Iterator[tuple[str, Any]]:
    """All layers that may be refused, with their paths."""

    def wanted(node: Any) -> bool:
        if isinstance(node, eqx.nn.Sequential):  # stateful where its layers are, and they make the better message
            return False
        return isinstance(node, eqx.nn.Dropout) or (isinstance(node, eqx.nn.StatefulLayer) and node.is_stateful())

    leaves = jax.tree.leaves_with_path(module, is_leaf=wanted)
    return ((jax.tree_util.keystr(path), node) for path, node in leaves if wanted(node))


def _is_zero(rate: Any) -> bool:
    return isinstance(rate, int | float) and rate == 0


def _refusal(layer: Any, path: str, why: str, way_out: str) -> BatchDependenceError:
    return BatchDependenceError(f"{type(layer).__name__} at {path or 'the top'} {why}. {way_out}")
