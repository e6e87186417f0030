"""Fixed vectors of places in PyTorch modules: what is read of them, and what is refused."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import ArchitectureError
from everwide._walk import walk
from everwide.translation._fixed import FixedVectors

torch = pytest.importorskip("torch")
nn = torch.nn

from translation.draws import require_agreement  # noqa: E402
from translation.test_torch_modules import torch_kernels  # noqa: E402
from translation.test_torch_refusals import Module  # noqa: E402
from translation.torch_fixed_modules import CASES, SAMPLED_CASES, Frozen, Sines, sines  # noqa: E402

pytestmark = pytest.mark.wide


def tables_of(module, shape):
    limit = ew.from_module(module.eval(), shape)
    return [visit.layer.table for visit in walk(limit.net) if isinstance(visit.layer, FixedVectors)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES | SAMPLED_CASES)
def test_torch_fixed_vectors(name):
    make, shape, draws, layers = (CASES | SAMPLED_CASES)[name]
    limit = ew.from_module(make(8).eval(), shape)
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}
    sampled = 32 if name in SAMPLED_CASES else None
    require_agreement(lambda width: make(width).eval(), shape, torch_kernels(make, draws), draws=sampled)


def test_torch_fixed_vectors_are_those_of_the_module():
    """The first of a longer table; where sites are two axes here and one there, in their order."""
    np.testing.assert_allclose(tables_of(Sines(8), (3, 24))[0], sines(3, 8).numpy(), rtol=1e-6)
    (table,) = tables_of(Frozen(8), (3, 8, 8))
    np.testing.assert_allclose(table, sines(4, 8).numpy().reshape(2, 2, 8), rtol=1e-6)


def test_torch_fixed_vectors_have_their_own_second_moments():
    """Between places, too; a normalization takes their means over the channels away."""
    x, table = np.zeros((1, 3, 6)), sines(3, 8).numpy().astype(float)
    for norm in (None, nn.LayerNorm(8, elementwise_affine=False)):
        first = nn.Linear(6, 8, bias=False)
        module = Module(lambda m, x: m.n(m.a(x) + m.t), a=first, n=norm or nn.Identity(), t=sines(3, 8))
        net = ew.Serial(ew.from_module(module, (3, 6)).net, ew.Flatten(), ew.Dense(1))
        rows = (table - table.mean(-1, keepdims=True)) if norm else table
        rows = rows / np.sqrt(np.mean(rows**2, -1, keepdims=True) + 1e-5) if norm else rows
        both = ew.gram(net, x)
        np.testing.assert_allclose(np.asarray(both.nngp)[0, 0], np.mean(rows**2), rtol=1e-5)
        pooled = ew.Serial(ew.from_module(module, (3, 6)).net, ew.GlobalAvgPool(), ew.Dense(1))
        np.testing.assert_allclose(np.asarray(ew.nngp(pooled, x))[0, 0], np.mean(rows.mean(0) ** 2), rtol=1e-5)


def test_torch_finite_networks_have_fixed_vectors():
    limit = ew.from_module(Sines(8).eval(), (3, 24))
    params = limit.net.init(jr.key(0), limit.input_shape, parametrization="standard")
    assert limit.net.apply(params, jnp.ones((3, 24))).shape == (256,)


@pytest.mark.parametrize("repeat", [lambda t, n: t.expand(n, -1, -1), lambda t, n: t.repeat(n, 1, 1)])
def test_torch_what_is_repeated_for_all_examples_is_fixed(repeat):
    module = Module(lambda m, x: m.a(x) + repeat(m.t, x.size(0)), a=nn.Linear(6, 8))
    module.register_buffer("t", sines(5, 8)[None])
    (table,) = tables_of(module, (5, 6))
    np.testing.assert_allclose(table, sines(5, 8), rtol=1e-6)


def test_torch_what_is_computed_in_forward_is_fixed():
    module = Module(lambda m, x: m.a(x) + torch.sin(torch.arange(x.size(1)).float())[:, None], a=nn.Linear(6, 8))
    (table,) = tables_of(module, (5, 6))
    np.testing.assert_allclose(table, np.broadcast_to(np.sin(np.arange(5))[:, None], (5, 8)), rtol=1e-5)


def test_torch_one_number_for_all_is_a_number():
    module = Module(lambda m, x: m.b(m.a(x) / m.scale), a=nn.Linear(6, 8), b=nn.Linear(8, 2))
    module.register_buffer("scale", torch.sqrt(torch.FloatTensor([8])))
    assert "Scale(0.353553)" in [row.layer for row in ew.from_module(module, (6,)).rows]


@pytest.mark.parametrize("run", [lambda m, x: torch.relu(m.a(x) + m.t), lambda m, x: m.a(x) + m.t + m.t])
def test_torch_functions_of_fixed_vectors_and_a_signal_are_sampled(run):
    """Of a Gaussian with a mean of its own in every channel; the same vectors added twice are not independent."""
    module = Module(lambda m, x: m.b(run(m, x)), a=nn.Linear(6, 8), b=nn.Linear(8, 2), t=sines(5, 8))
    rows = ew.from_module(module, (5, 6)).rows
    assert [str(row.outcome) for row in rows if row.layer in ("Relu", "Sum")][-1] == "sampled"


REFUSED = {
    "to the input": (lambda m, x: m.b(x + m.s), "a function of the raw input.*do it to the data"),
    "to the input, twice": (lambda m, x: m.b(x + m.s + m.s), "a function of the raw input.*do it to the data"),
    "behind a learned factor": (lambda m, x: m.a(x) + m.c * m.t, "belongs to no layer"),
    "drawn in every call": (lambda m, x: m.a(x) + torch.randn(5, 8), "belongs to no layer"),
    "as factors": (lambda m, x: m.a(x) * m.t, "fixed, where they are added"),
    "one for each example": (lambda m, x: m.a(x) + torch.arange(x.size(0)).float()[:, None, None], "for all examples"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_torch_fixed_vectors_that_are_refused(name):
    run, message = REFUSED[name]
    layers = {"a": nn.Linear(6, 8), "b": nn.Linear(6, 2), "c": nn.Parameter(torch.ones(1)), "t": sines(5, 8)}
    with pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(Module(run, **layers, s=sines(5, 6)), (5, 6))
