"""An argument has one name in the whole library, and a name one meaning: docs/shapes.md has the dictionary."""

import re

import pytest

import public_api

pytestmark = pytest.mark.once

# Say the second, not the first.
SAY = {
    "C_b": "b_std",
    "C_w": "w_std",
    "accuracy": "tolerance",
    "alpha": "ridge, relative_ridge",
    "apply": "f",
    "atol": "tolerance",
    "beta": "momentum",
    "callback": "progress",
    "diag_reg": "ridge, relative_ridge",
    "eta": "rate",
    "field": "which",
    "high": "x1, x2",
    "k": "kernel",
    "learning_rate": "rate",
    "low": "x1, x2",
    "lr": "rate",
    "n_rows": "n",
    "normalization": "nothing: a loss is a mean over rows",
    "p": "x1, x2",
    "precision": "tolerance",
    "q": "x1, x2",
    "random_state": "seed, key",
    "read": "which",
    "rng": "key, seed",
    "rows": "n, where it is a count",
    "rtol": "tolerance",
    "shape": "input_shape",
    "std": "w_std, b_std",
    "tol": "tolerance",
    "variance": "w_std, b_std, noise",
    "verbose": "progress",
    "widths": "hidden_widths, layer_widths, unless one network is made of each",
}
# Where the word is right, and why: a path, or how paths begin.
EXCEPTIONS = {
    "C_b": {"everwide.theory.criticality.": "variances, in which the literature draws its phase diagrams"},
    "C_w": {"everwide.theory.criticality.": "variances, in which the literature draws its phase diagrams"},
    "alpha": {
        "everwide.activations.Elu": "what everybody calls it",
        "everwide.theory.deep_linear.marchenko_pastur": "the ratio of both sides of a matrix, as the law has it",
        "everwide.theory.deep_linear.posterior_scale": "the ratio of rows to inputs, as the paper has it",
    },
    "k": {"everwide.layers.": "what flows through a layer, not a matrix"},
    "random_state": {"everwide.estimators.": "scikit-learn's name"},
    "rows": {
        "everwide.KernelOperator.": "which rows, not how many",
        "everwide.spectral.Nystrom": "rows to choose centres from, beside the number of these",
        "everwide.theory.eigenlearning.learnability": "which rows, not how many",
        "everwide.tables.Table": "which rows, not how many",
        "everwide.tables.Table.take": "which rows, not how many",
        "everwide.training.KernelLayer.tap": "the rows themselves",
    },
    "shape": {
        "everwide.layers.Resize": "the sites that are wanted",
        "everwide.signal.Signal": "that of a signal, which is no example",
    },
    "std": {"everwide.theory.eigenlearning.hermite_coefficients": "of a Gaussian input, not of a weight"},
    "variance": {
        "everwide.theory.criticality.propagate": "of the inputs",
        "everwide.theory.deep_linear.marchenko_pastur": "of the entries of a matrix",
    },
    "verbose": {"everwide.estimators.": "scikit-learn's name"},
    "widths": {
        "everwide.compare": "one network of each",
        "everwide.testing.check_layer": "one network of each",
        "everwide.theory.rates.rate_table": "one network of each",
    },
}
# Members of classes may be called as they are read aloud (`operator.shape`, `forecast.accuracy`), but not these.
NEVER = ("beta", "diag_reg", "lr", "normalization", "rng", "rtol", "atol")


def arguments(line: str) -> list[str]:
    """`"a.f(x, *, y=(1, 2))"` has `["x", "y"]`."""
    _, _, inside = line.partition("(")
    flat = inside.rpartition(")")[0]
    while (flatter := re.sub(r"\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>|'[^']*'", "", flat)) != flat:
        flat = flatter
    return [a.strip(" *").partition("=")[0] for a in flat.split(",") if a.strip(" *")]


def is_excepted(path: str, word: str) -> bool:
    return any(path == p or (p.endswith(".") and path.startswith(p)) for p in EXCEPTIONS.get(word, ()))


def synonyms(lines: list[str]) -> list[str]:
    """What the dictionary has another word for."""
    out = []
    for line in lines:
        path = re.match(r"[\w.]+", line)[0]
        out += [f"{path}({a}): {SAY[a]}" for a in arguments(line) if a in SAY and not is_excepted(path, a)]
        last = path.rpartition(".")[2]
        if last in NEVER:
            out.append(f"{path}: {SAY[last]}")
        if re.search(r"\bkernel='", line):
            out.append(f"{path}(kernel=...): which")
    return out


def test_no_synonym_is_public():
    assert not synonyms(public_api.SNAPSHOT.read_text().splitlines())


def test_a_loss_is_a_class():
    lines = public_api.SNAPSHOT.read_text().splitlines()
    assert not [
        line for line in lines if re.fullmatch(r"everwide\.training\.\w*(mse|hinge|huber|poisson|entropy)", line)
    ]


def test_exceptions_are_needed():
    lines = public_api.SNAPSHOT.read_text().splitlines()
    used = {(re.match(r"[\w.]+", line)[0], a) for line in lines for a in arguments(line)}
    unused = [
        (word, p)
        for word, paths in EXCEPTIONS.items()
        for p in paths
        if not any(a == word and (path == p or (p.endswith(".") and path.startswith(p))) for path, a in used)
    ]
    assert not unused


@pytest.mark.parametrize(
    ("line", "complaints"),
    [
        ("everwide.theory.f(kernel, beta=0.9)", ["everwide.theory.f(beta): momentum"]),
        ("everwide.f(x, *, which='ntk', at=(1, 2), dtype=<class 'numpy.float32'>)", []),
        ("everwide.f(net, kernel='nngp')", ["everwide.f(kernel=...): which"]),
        ("everwide.Result.normalization", ["everwide.Result.normalization: nothing: a loss is a mean over rows"]),
        ("everwide.activations.Elu(alpha=1.0)", []),
    ],
)
def test_synonyms_are_noticed(line, complaints):
    assert synonyms([line]) == complaints
