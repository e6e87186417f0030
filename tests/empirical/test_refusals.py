"""What depends on other examples or on chance is refused; what only looks like it is not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everwide.empirical._models import as_model
from everwide.empirical._refusals import BatchDependenceError, refuse_batch_dependence, refuse_mixing, two_examples

pytestmark = pytest.mark.once

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def equinox_net(layer):
    return eqx.nn.Sequential([eqx.nn.Linear(3, 3, key=KEY), layer])


def test_equinox_dropout():
    net = equinox_net(eqx.nn.Dropout(0.5))
    with pytest.raises(BatchDependenceError, match=r"Dropout at .layers\[1\] drops.*inference_mode"):
        as_model(net)
    as_model(eqx.nn.inference_mode(net))
    as_model(equinox_net(eqx.nn.Dropout(0.0)))
    as_model(eqx.nn.MultiheadAttention(2, 4, key=KEY))  # contains a dropout of rate 0
    with pytest.raises(BatchDependenceError, match="Dropout"):
        as_model(_Called(eqx.nn.MultiheadAttention(2, 4, dropout_p=0.1, key=KEY)))


class _Called(eqx.Module):
    inner: eqx.Module

    def __call__(self, x):
        return x


def test_equinox_batch_norm():
    net = equinox_net(eqx.nn.BatchNorm(3, "batch", mode="batch"))
    with pytest.raises(BatchDependenceError, match=r"BatchNorm at .*statistics of the batch"):
        as_model(net)
    with pytest.raises(ValueError, match="needs a state"):
        as_model(eqx.nn.inference_mode(net))


class TestNnx:
    @pytest.fixture(autouse=True)
    def _nnx(self):
        self.nnx = pytest.importorskip("flax.nnx")

    def net(self, layer):
        return self.nnx.Sequential(self.nnx.Linear(3, 4, rngs=self.nnx.Rngs(0)), layer)

    @pytest.mark.parametrize("kind", ["BatchNorm", "Dropout", "MultiHeadAttention"])
    def test_training_mode(self, kind):
        nnx, rngs = self.nnx, self.nnx.Rngs(0)
        layer = {
            "BatchNorm": lambda: nnx.BatchNorm(4, rngs=rngs),
            "Dropout": lambda: nnx.Dropout(0.5, rngs=rngs),
            "MultiHeadAttention": lambda: nnx.MultiHeadAttention(2, 4, dropout_rate=0.1, rngs=rngs),
        }[kind]()
        net = self.net(layer)
        with pytest.raises(BatchDependenceError, match=rf"{kind} at layers.1 .*module.eval\(\)"):
            as_model(net)
        net.eval()
        as_model(net)  # must not raise

    def test_harmless_layers_pass(self):  # must not raise
        as_model(self.net(self.nnx.Dropout(0.0, rngs=self.nnx.Rngs(0))))
        as_model(self.net(self.nnx.LayerNorm(4, rngs=self.nnx.Rngs(0))))

    def test_mixing_is_found_by_calling(self):
        nnx = self.nnx

        class Centred(nnx.Module):
            def __init__(self, mixes):
                self.out, self.mixes = nnx.Linear(3, 2, rngs=nnx.Rngs(0)), mixes

            def __call__(self, x):
                return self.out(x - x.mean(0) if self.mixes else x - x.mean(1, keepdims=True))

        with pytest.raises(BatchDependenceError, match="mixes examples"):
            refuse_batch_dependence(as_model(Centred(True)), X)
        refuse_batch_dependence(as_model(Centred(False)), X)


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")
        self.nn = self.torch.nn

    def net(self, layer):
        return self.nn.Sequential(self.nn.Linear(3, 4), self.nn.Sequential(layer))

    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            ("BatchNorm1d", {"num_features": 4}),
            ("Dropout", {"p": 0.5}),
            ("AlphaDropout", {"p": 0.5}),
            ("RReLU", {}),
            ("GRU", {"input_size": 4, "hidden_size": 4, "num_layers": 2, "dropout": 0.1}),
            ("MultiheadAttention", {"embed_dim": 4, "num_heads": 2, "dropout": 0.1}),
        ],
    )
    def test_training_mode(self, kind, options):
        net = self.net(getattr(self.nn, kind)(**options))
        with pytest.raises(BatchDependenceError, match=rf"{kind} at 1.0 .*module.eval\(\)"):
            as_model(net)
        as_model(net.eval())  # must not raise

    def test_harmless_layers_pass(self):  # must not raise
        as_model(self.net(self.nn.Dropout(0.0)))
        as_model(self.net(self.nn.InstanceNorm1d(4)))
        as_model(self.net(self.nn.GRU(4, 4)))

    def test_batch_statistics_in_evaluation_mode(self):
        with pytest.raises(BatchDependenceError, match="track_running_stats"):
            as_model(self.net(self.nn.BatchNorm1d(4, track_running_stats=False)).eval())

    @pytest.mark.parametrize("option", ["max_norm", "scale_grad_by_freq"])
    def test_embeddings_without_a_derivative(self, option):
        with pytest.raises(ValueError, match=option):
            as_model(self.nn.Embedding(5, 3, **{option: True}))

    def test_parameters(self):
        with pytest.raises(ValueError, match="requires_grad_"):
            as_model(self.net(self.nn.ReLU()).requires_grad_(False))
        with pytest.raises(ValueError, match=r"0.weight is torch.float16.*module.float\(\)"):
            as_model(self.net(self.nn.ReLU()).half())


def test_a_random_function_is_found():
    rng = np.random.default_rng(0)  # without a seed, two calls agree by chance once in some thousand runs

    def noisy(params, x):
        return params @ (x * rng.normal(size=3).astype(np.float32))

    with pytest.raises(BatchDependenceError, match="random"):
        refuse_batch_dependence(as_model(noisy, jnp.ones(3, jnp.float32)), X)


def test_a_function_with_fixed_randomness_passes():
    key = jax.random.key(1)

    def fixed(params, x):
        return params @ (x * jax.random.normal(key, (3,), x.dtype))

    refuse_batch_dependence(as_model(fixed, jnp.ones(3, jnp.float32)), X)  # must not raise


def softmax_over_examples(x):
    e = np.exp(x)
    return e / e.sum(0)


@pytest.mark.parametrize("x", [X, X[:1], np.repeat(X[:1], 3, 0)], ids=["many", "one", "equal"])
def test_mixing_is_found_with_few_examples(x):
    with pytest.raises(BatchDependenceError, match="mixes examples"):
        refuse_mixing(softmax_over_examples, x)
    refuse_mixing(lambda x: np.tanh(x), x)


def test_two_examples_differ_and_keep_integers_valid():
    x = {"ids": np.array([[1, 2], [1, 2], [1, 2]]), "x": np.array([[0.0], [0.0], [1.0]])}
    pair, real = two_examples(x)
    assert real
    np.testing.assert_array_equal(pair["x"], [[0.0], [1.0]])
    made, real = two_examples({"ids": np.array([[1, 2]])})
    assert not real
    np.testing.assert_array_equal(made["ids"], [[1, 2], [2, 1]])
