"""Reference cases of finite networks: tangent kernels and Taylor expansions of a multilayer perceptron."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from everwide.empirical import empirical_ntk, ntk_operator
from everwide.linearization import linearize, taylor
from everwide.signal import ArchitectureError

Arrays = Mapping[str, np.ndarray]
Params = dict[str, Array]

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: jnp.maximum(x, 0),
    "tanh": jnp.tanh,
    "erf": jax.scipy.special.erf,
    "gelu": lambda x: x * jax.scipy.special.ndtr(x),
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "identity": lambda x: x,
}


def empirical_quantities(case: Mapping[str, Any], stored: Arrays, dtype: type) -> Iterator[tuple[str, np.ndarray]]:
    """Everything that the case has a reference for, by name."""
    f = _network(str(case["model"]), stored)
    params, other = _params(stored, "", dtype), _params(stored, "q_", dtype)
    x1, x2, v = (jnp.asarray(stored[name], dtype) for name in ("x1", "x2", "v"))

    def batch(g: Callable[[Params, Array], Array], p: Params, x: Array = x1) -> np.ndarray:
        return np.asarray(jax.vmap(lambda one: g(p, one))(x))

    def outer() -> np.ndarray:
        return np.einsum("ia,jb->ijab", batch(f, params), batch(f, params, x2))

    rules: dict[str, Callable[[], np.ndarray]] = {
        "f_x1": lambda: batch(f, params),
        "ntk_full": lambda: empirical_ntk(f, params, x1, x2),
        "ntk_trace": lambda: empirical_ntk(f, params, x1, x2, outputs="trace"),
        "ntk_diag": lambda: empirical_ntk(f, params, x1, x2, outputs="diagonal"),
        "ntk_self_diag_samples": lambda: np.einsum("iiab->iab", empirical_ntk(f, params, x1)),
        "ntk_vp": lambda: np.asarray(ntk_operator(f, params, x1, x2) @ v),
        "nngp_full": outer,
        "nngp_trace": lambda: np.einsum("ijaa->ij", outer()) / outer().shape[-1],
        "lin_x1": lambda: batch(linearize(f, params), other),
        "taylor2_x1": lambda: batch(taylor(f, params, 2), other),
    }
    given = {"x1", "x2", "v", *(f"{prefix}{name}" for prefix in ("", "q_") for name in params)}
    for name in stored.keys() - given:
        if name not in rules:
            raise ArchitectureError(f"Unknown quantity {name!r}, expected one of {', '.join(rules)}.")
        yield name, rules[name]()


def _network(model: str, stored: Arrays) -> Callable[[Params, Array], Array]:
    """`act(x W1 / sqrt(fan_in) + c b1) W2 / sqrt(fan_in) + ...`, as the case says in words."""
    activation, bias = re.search(r"act\s*=\s*(\w+)", model), re.search(r"([\d.]+)\s*\*?\s*b1", model)
    if activation is None or bias is None or activation[1] not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ArchitectureError(f"Unknown model {model!r}: expected 'act=' one of {known}, and 'c b1'.")
    act, scale = _ACTIVATIONS[activation[1]], float(bias[1])
    depth = sum(re.fullmatch(r"W\d+", name) is not None for name in stored)

    def f(params: Params, x: Array) -> Array:
        for layer in range(1, depth + 1):
            weight = params[f"W{layer}"]
            x = x @ weight / math.sqrt(len(weight)) + scale * params[f"b{layer}"]
            x = act(x) if layer < depth else x
        return x

    return f


def _params(stored: Arrays, prefix: str, dtype: type) -> Params:
    names = (re.fullmatch(rf"{prefix}([Wb]\d+)", key) for key in stored)
    return {name[1]: jnp.asarray(stored[name[0]], dtype) for name in names if name is not None}
