"""Rows as features whose inner products are a kernel, and what is done to features before rows are chosen by them."""

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import budget, checked_kernel, require
from .._gram import diagonal, nngp, ntk
from ..empirical import as_model, evaluate, tangent_features
from ..layers import AbstractLayer
from ..spectral import partial_cholesky
from ._learners import AbstractLearner, Estimator, Network, take

DIM = 512  # features of a row: more of them choose hardly better
_FEWEST = 16
_COPIES = 4  # of the features that methods make
_EXACT = 1500  # rows up to which features of a kernel matrix are exact
_KERNELS = ("tangent", "last_layer", "inputs")


class AbstractEmbedding(abc.ABC):
    """Rows as features."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """Which kernel it is."""

    @abc.abstractmethod
    def features(self, rows: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        """Of some rows; some methods need few numbers of each, `dim` or not many more."""

    @abc.abstractmethod
    def weighted(
        self, rows: np.ndarray, weights: Float[np.ndarray, "n k"], dim: int, seed: int
    ) -> Float[np.ndarray, "n p"]:
        """Features of `sum_a weights[i, a] f_a(x[i])`, such as the gradient of a loss."""


@dataclass(frozen=True, eq=False)
class Tangent(AbstractEmbedding):
    """The tangent kernel of a network, projected at random."""

    model: Any
    x: Any
    last: bool

    @property
    def words(self) -> str:
        return "last layer of the model" if self.last else "tangent kernel of the model"

    def features(self, rows: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        return self._projected(rows, None, dim, seed)

    def weighted(self, rows: np.ndarray, weights: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        single = evaluate(self.model, None, take(self.x, rows[:1])).shape[1] == 1
        return self._projected(rows, weights[:, 1:] if single else weights, dim, seed)  # one logit is of the second

    def _projected(self, rows: np.ndarray, weights: np.ndarray | None, dim: int, seed: int) -> np.ndarray:
        key, x = jax.random.key(seed), take(self.x, rows)
        return tangent_features(self.model, None, x, key, dim, outputs="trace", weights=weights, last=self.last)


class AbstractShared(AbstractEmbedding):
    """A kernel that all outputs share."""

    def weighted(self, rows: np.ndarray, weights: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        features = self.features(rows, dim, seed)
        if features.shape[1] * weights.shape[1] <= dim:
            return (features[:, :, None] * weights[:, None]).reshape(len(rows), -1)
        rng = np.random.default_rng(seed)
        left, right = (rng.choice([-1.0, 1.0], size=(part.shape[1], dim)) for part in (features, weights))
        return (features @ left) * (weights @ right) / dim**0.5


@dataclass(frozen=True, eq=False)
class Inputs(AbstractShared):
    """Scaled inputs."""

    inputs: Float[np.ndarray, "n *shape"]

    @property
    def words(self) -> str:
        return "scaled inputs"

    def features(self, rows: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        scaled = standardized(self.inputs[rows])
        if scaled.shape[1] <= 2 * dim:
            return scaled
        return scaled @ np.random.default_rng(seed).choice([-1.0, 1.0], size=(scaled.shape[1], dim)) / dim**0.5


@dataclass(frozen=True, eq=False)
class Infinite(AbstractShared):
    """The kernel of an infinitely wide network."""

    net: AbstractLayer
    x: np.ndarray
    which: str
    name: str

    @property
    def words(self) -> str:
        return f"{self.which} kernel of {self.name}, infinitely wide"

    def features(self, rows: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        kernel, some = {"ntk": ntk, "nngp": nngp}[self.which], self.x[rows]
        own = np.asarray(getattr(diagonal(self.net, some), self.which), np.float64)
        if own.ndim != 1:
            raise InputError("The network has outputs at sites. End it with Flatten or pooling.")
        return partial_cholesky(
            lambda columns: kernel(self.net, some, some[columns]), own, _size(len(rows), dim), seed=seed
        )


@dataclass(frozen=True, eq=False)
class Matrix(AbstractShared):
    """A kernel matrix of all rows."""

    matrix: Float[np.ndarray, "n n"]

    @property
    def words(self) -> str:
        return "given kernel matrix"

    def features(self, rows: np.ndarray, dim: int, seed: int) -> Float[np.ndarray, "n p"]:
        some = self.matrix[np.ix_(rows, rows)]
        return partial_cholesky(lambda columns: some[:, columns], np.diagonal(some), _size(len(rows), dim), seed=seed)


def _size(n: int, dim: int) -> int:
    """Columns of a kernel that are computed: all of them, if there are few."""
    return n if n <= _EXACT else dim


def embedding_of(
    kernel: Any, learner: AbstractLearner | None, x: Any, inputs: Float[np.ndarray, "n *shape"], which: str
) -> AbstractEmbedding:
    """What a kernel says of rows; by default the model's own."""
    if isinstance(kernel, AbstractLayer):
        if which not in ("ntk", "nngp"):
            raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
        return Infinite(kernel, inputs, which, "the given network")
    if isinstance(kernel, str) and kernel not in _KERNELS:
        raise InputError(f"kernel={kernel!r}: expected one of {', '.join(map(repr, _KERNELS))}, a network or a matrix.")
    if kernel is not None and not isinstance(kernel, str):
        matrix = checked_kernel(kernel)
        if len(matrix) != len(inputs):
            raise InputError(
                f"The kernel matrix has shape {matrix.shape}: expected one for all rows of x, {len(inputs)}."
            )
        return Matrix(matrix)
    if kernel in ("tangent", "last_layer") or kernel is None:
        network, shown = _network_of(learner, x)
        if network is not None:
            return Tangent(network.model, shown, kernel == "last_layer")
        if kernel is not None:
            kind = "no model" if learner is None else type(getattr(learner, "model", learner)).__name__
            raise InputError(
                f"kernel={kernel!r} needs a model that can be differentiated: a JAX function with parameters, an "
                f"Equinox, Flax NNX or PyTorch module; got {kind}. Use kernel='inputs', or a network of everwide."
            )
        if isinstance(learner, Estimator) and learner.network is not None:
            choice = learner.model.choice_
            return Infinite(learner.network, learner.model.transform_inputs(x), choice.which, choice.description)
    return Inputs(inputs)


def standardized(inputs: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n d"]:
    """Columns of mean 0 and variance 1, without those that never vary."""
    flat = inputs.reshape(len(inputs), -1)
    mean, std = flat.mean(0, dtype=np.float64), flat.std(0, dtype=np.float64)
    varies = std > 1e-12 * np.maximum(np.abs(flat).max(0), 1e-290)
    scaled = (flat[:, varies] - mean[varies]) / std[varies]
    return scaled.astype(np.float64) if varies.any() else np.zeros((len(flat), 1))


def dim_for(n: int, memory: int | None) -> int:
    """Features of a row that fit."""
    have = budget(memory)
    require(8 * _COPIES * n * _FEWEST, have, f"Features of {n} rows", "Give fewer candidates.")
    return int(min(DIM, have // (8 * _COPIES * n)))


def _network_of(learner: AbstractLearner | None, x: Any) -> tuple[Network | None, Any]:
    """A network that can be differentiated, and the rows as it reads them; scikit-learn's networks are some, too."""
    if isinstance(learner, Network):
        return learner, x
    model: Any = getattr(learner, "model", None)
    steps = getattr(model, "steps", None)
    last = steps[-1][1] if steps else model
    if last is None or not all(hasattr(last, name) for name in ("coefs_", "intercepts_", "activation")):
        return None, x
    shown = model[:-1].transform(x) if steps and len(steps) > 1 else x
    params = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(last.coefs_, last.intercepts_, strict=True)]
    dtype = params[0][0].dtype
    return Network(as_model(_MLPS[last.activation], params)), np.asarray(shown).astype(dtype)


def _mlp(activation: Any) -> Any:
    """A multilayer perceptron as scikit-learn keeps it, without what turns its outputs into probabilities."""

    def f(params: Any, x: Any) -> Any:
        for w, b in params[:-1]:
            x = activation(x @ w + b)
        return x @ params[-1][0] + params[-1][1]

    return f


_MLPS = {
    "relu": _mlp(jax.nn.relu),
    "tanh": _mlp(jnp.tanh),
    "logistic": _mlp(jax.nn.sigmoid),
    "identity": _mlp(lambda x: x),
}
