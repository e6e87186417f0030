"""The nonlinearities of the reference vocabulary."""

from collections.abc import Callable

from everwide import activations as act

from ._words import Word

NUMERICAL: dict[str, Callable[[], act.AbstractActivation]] = {
    "tanh": act.Tanh,
    "sigmoid": act.Sigmoid,
    "logistic": act.Sigmoid,
    "expit": act.Sigmoid,
    "silu": act.Silu,
    "swish": act.Silu,
    "softplus": act.Softplus,
    "elu": act.Elu,
    "selu": act.Selu,
    "mish": act.Mish,
    "hard_tanh": act.HardTanh,
    "hardtanh": act.HardTanh,
    "relu6": act.Relu6,
    "relu": act.Relu,
    "leaky_relu": act.LeakyRelu,
    "abs": act.Abs,
    "erf": act.Erf,
    "gelu": act.Gelu,
    "sin": act.Sin,
    "sine": act.Sin,
    "cos": act.Cos,
    "exp": act.Exp,
}


def _numerical(w: Word) -> act.AbstractActivation:
    w.take("deg", None)  # how the reference was computed, not what it approximates
    return w.choice("fn", NUMERICAL)()


def _gelu(w: Word) -> act.AbstractActivation:
    w.insist("approximate", False)
    return act.Gelu()


ACTIVATIONS: dict[str, Callable[[Word], act.AbstractActivation]] = {
    "relu": lambda w: act.Relu(),
    "leaky_relu": lambda w: act.LeakyRelu(w.number("alpha")),
    "abs": lambda w: act.Abs(),
    "abrelu": lambda w: act.TwoSlope(w.number("a"), w.number("b")),
    "erf": lambda w: act.Erf(w.number("a", 1.0), w.number("b", 1.0), w.number("c", 0.0)),
    "sigmoid_like": lambda w: act.SigmoidLike(),
    "gelu": _gelu,
    "sin": lambda w: act.Sin(w.number("a", 1.0), w.number("b", 1.0), w.number("c", 0.0)),
    "cos": lambda w: act.Cos(w.number("a", 1.0), w.number("b", 1.0), w.number("c", 0.0)),
    "rbf": lambda w: act.Rbf(w.number("gamma", 1.0)),
    "monomial": lambda w: act.Monomial(w.whole("degree")),
    "rectified_monomial": lambda w: act.RectifiedMonomial(w.whole("degree")),
    "polynomial": lambda w: act.Polynomial(tuple(float(c) for c in w.take("coef"))),
    "hermite": lambda w: act.Hermite(w.whole("degree")),
    "exp": lambda w: act.Exp(w.number("a", 1.0), w.number("b", 1.0)),
    "gaussian": lambda w: act.Gaussian(w.number("a", 1.0), w.number("b", -1.0)),
    "sign": lambda w: act.Sign(),
    "gabor": lambda w: act.Gabor(),
    "exp_normalized": lambda w: act.ExpNormalized(w.number("gamma", 1.0), w.number("shift", -1.0)),
    "elementwise_numerical": _numerical,
}
