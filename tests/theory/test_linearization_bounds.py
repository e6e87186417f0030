"""Bounds hold, the exact supremum is one, and the constants are those of the theorems."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import InputError
from everwide.testing._draws import Slope, exact_for
from everwide.theory.finite_width import (
    lee_certificate,
    linearization_bound,
    lipschitz_upper_bound,
    relu_linearization_sup,
)

pytestmark = pytest.mark.once

DTYPE = jnp.result_type(float)
TANH = 4 / (3 * 3**0.5)  # the largest |tanh''|
RNG = np.random.default_rng


def error(act, slope, z, u, a):
    """|f - f_lin| of `sum a s(z) / sqrt(m)` where preactivations move by `u`."""
    return abs(np.sum(a * (act(z + u) - act(z) - slope(z) * u))) / np.sqrt(len(z))


def relu_error(z, u, a):
    return error(lambda v: np.maximum(v, 0), lambda v: (v > 0).astype(float), z, u, a)


def test_the_smooth_bound_is_never_violated():
    rng, worst = RNG(1), 0.0
    for trial in range(300):
        m, radius = int(10 ** rng.uniform(0.5, 4)), 10 ** rng.uniform(-1, 1.5)
        z, a, u = rng.normal(size=m), rng.choice([-1.0, 1.0], m), rng.normal(size=m)
        if trial % 2:  # adversarial: all neurons err in one direction
            u = np.abs(u) * np.sign(-a * np.tanh(z))
        u *= radius / np.linalg.norm(u)
        found = error(np.tanh, lambda v: 1 - np.tanh(v) ** 2, z, u, a)
        worst = max(worst, found / linearization_bound(radius, width=m, curvature=TANH))
    assert 0.2 < worst <= 1


def test_the_relu_bound_holds_with_its_probability():
    rng, violations = RNG(2), 0
    for _ in range(300):
        m, radius = int(rng.choice([100, 1000, 10_000])), 10 ** rng.uniform(-1, 1)
        supremum = relu_linearization_sup(rng.normal(size=m), rng.choice([-1.0, 1.0], m), radius)
        violations += bool(supremum > linearization_bound(radius, width=m, delta=0.05))
    assert violations == 0


def test_the_bounds_in_numbers():
    """`8^(4/3) = 16`, `log(e^16)^(1/4) = 2`, `64^(1/6) = 2`."""
    assert linearization_bound(8.0, width=64, delta=np.exp(-16.0)) == pytest.approx((2 * 16 + 8 * 2) / 2)
    assert linearization_bound(8.0, width=64, curvature=0.5) == pytest.approx(0.5 * 64 / (2 * 8))
    assert linearization_bound([1.0, 8.0], width=1, delta=np.exp(-1.0)).tolist() == pytest.approx([3.0, 40.0])


@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_the_supremum_is_the_best_of_all_sets_of_neurons(radius):
    """Brute force: every set of neurons of one sign, with shares in proportion, moved past their kinks."""
    rng, m = RNG(3), 6
    z, a = rng.normal(size=m), np.array([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    best = 0.0
    for size in range(1, m + 1):
        for chosen in itertools.combinations(range(m), size):
            u = np.zeros(m)
            u[list(chosen)] = -np.sign(z[list(chosen)]) * radius / np.sqrt(size)
            best = max(best, relu_error(z, u, a))
    assert float(relu_linearization_sup(z, a, radius)) == pytest.approx(best, rel=1e-5)


def test_no_movement_exceeds_the_supremum():
    rng, m, radius = RNG(4), 5, 2.0
    z, a = rng.normal(size=m), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    u = rng.normal(size=(100_000, m)) * rng.choice([0.0, 1.0], size=(100_000, m))
    u *= radius / np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-9)
    found = max(relu_error(z, one, a) for one in u[:: len(u) // 20_000])
    supremum = float(relu_linearization_sup(z, a, radius))
    assert 0.9 * supremum < found <= supremum * (1 + 1e-6)


def test_the_supremum_scales_as_in_the_limit():
    rng, widths, radii = RNG(5), [10**3, 10**4, 10**5], np.array([0.5, 1.0, 2.0, 4.0])
    signs = lambda m: rng.choice([-1.0, 1.0], m)
    by_width = [np.mean([relu_linearization_sup(rng.normal(size=m), signs(m), 1.0) for _ in range(5)]) for m in widths]
    assert Slope(-1 / 6, 0.025).excess(widths, by_width) < 1
    assert by_width[-1] * widths[-1] ** (1 / 6) == pytest.approx(0.75 / (2 * np.sqrt(2 * np.pi)) ** (1 / 3), rel=0.05)
    z, a = rng.normal(size=10**5), signs(10**5)
    assert Slope(4 / 3, 0.04).excess(radii, [relu_linearization_sup(z, a, radius) for radius in radii]) < 1


def test_a_linearized_relu_network_is_its_kernel():
    rng = RNG(6)
    w0, w, a, x = (
        rng.normal(size=(40, 5)),
        rng.normal(size=(40, 5)),
        rng.choice([-1.0, 1.0], 40),
        rng.normal(size=(3, 5)),
    )
    w0, w, a, x = (jnp.asarray(v, DTYPE) for v in (w0, w, a, x))
    f = lambda weights, one: a @ jax.nn.relu(weights @ one) / 40**0.5
    features = jax.jit(jax.vmap(jax.grad(f), (None, 0)))(w0, x)
    linear = jax.vmap(ew.linearize(f, w0), (None, 0))(w, x)
    assert exact_for(DTYPE).excess(linear, jnp.einsum("nij,ij->n", features, w)) < 1  # no constant term
    kernel = jnp.einsum("nij,mij->nm", features, features)
    assert exact_for(DTYPE).excess(ew.empirical_ntk(f, w0, x, outputs="trace"), kernel) < 1
    gates = (np.asarray(x @ w0.T) > 0).astype(float)
    by_hand = np.asarray(x @ x.T) * (gates @ gates.T) / 40
    assert exact_for(DTYPE).excess(kernel, by_hand) < 1


def test_the_bounds_hold_on_a_run():
    """Two orthogonal examples, standard parametrization, a width at which the proof holds."""
    n, x = 4096, jnp.eye(2)
    first, second = jr.split(jr.key(0))
    start = jnp.concatenate([jr.normal(first, (n, 2)), jr.normal(second, (n, 1)) / n**0.5], 1)
    f = lambda p: jnp.tanh(x @ p[:, :2].T) @ p[:, 2]
    jacobian = jax.jit(lambda p: jax.jacrev(f)(p).reshape(2, -1))
    before, y = jacobian(start), f(start) + jnp.array([0.2, -0.2])
    values = np.linalg.eigvalsh(before @ before.T / n)
    rate, rms = float(2.0 / (values[0] + values[-1])), lambda r: float(jnp.sqrt(jnp.mean(jnp.square(r))))
    points, lengths, residuals = [start], 0.0, [rms(f(start) - y)]
    for _ in range(15):
        here = jacobian(points[-1])
        step = (rate / n) * ((f(points[-1]) - y) @ here).reshape(start.shape) / 2  # of the mean over two rows
        points.append(points[-1] - step)
        lengths += float(jnp.linalg.norm(step))
        residuals.append(rms(f(points[-1]) - y))
    after = [jacobian(p) for p in points[1:]]
    apart = [np.linalg.norm(j - before) / np.linalg.norm(p - start) for j, p in zip(after, points[1:], strict=True)]
    lipschitz = max(np.linalg.norm(before), *(np.linalg.norm(j) for j in after), *apart) / np.sqrt(n)
    given = {"width": n, "rate": rate, "lipschitz": lipschitz, "residual": residuals[0]}
    bounds = lee_certificate(np.asarray(before @ before.T / n, float), **given)
    assert bounds.holds
    assert all(r <= 1.001 * residuals[0] * bounds.contraction**t for t, r in enumerate(residuals))
    assert lengths <= bounds.movement
    assert max(np.linalg.norm(j @ j.T - before @ before.T) / n for j in after) <= bounds.kernel_change


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: linearization_bound(-1.0, width=10, curvature=1.0),
            "radius=-1.0: expected finite numbers from 0 on",
        ),
        (lambda: linearization_bound(1.0, width=0, curvature=1.0), "width=0: expected a finite number above 0"),
        (lambda: linearization_bound(1.0, width=10, delta=1.5), "expected a probability"),
        (lambda: linearization_bound(1.0, width=10, delta=0.5, curvature=1.0), "one of both"),
        (lambda: linearization_bound(1.0, width=10), "one of both"),
        (lambda: relu_linearization_sup(np.ones(3), np.ones(2), 1.0), r"z has shape \(3,\) and a \(2,\)"),
        (lambda: relu_linearization_sup(np.ones(2), np.array([1.0, 0.5]), 1.0), "1 and -1 only"),
    ],
)
def test_numbers_out_of_range(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_no_slope_of_a_network_is_above_the_product_of_spectral_norms():
    rng = RNG(10)
    ws = [rng.normal(size=shape) for shape in ((3, 8), (8, 8), (8, 2))]
    bound = lipschitz_upper_bound({"w": ws, "b": [np.full(8, 1e3)]})
    assert bound == pytest.approx(np.prod([np.linalg.svd(w, compute_uv=False)[0] for w in ws]))
    f = lambda x: np.tanh(np.maximum(x @ ws[0], 0) @ ws[1]) @ ws[2]
    x = rng.normal(size=(2, 500, 3))
    x[1] = x[0] + 0.1 * (x[1] - x[0])
    slopes = np.linalg.norm(f(x[0]) - f(x[1]), axis=1) / np.linalg.norm(x[0] - x[1], axis=1)
    assert 0.02 * bound < slopes.max() <= bound
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert lipschitz_upper_bound([turn, 5 * turn]) == pytest.approx(5.0)  # attained
    assert lipschitz_upper_bound([1e-30 * turn, 1e30 * turn]) == pytest.approx(1.0)
    assert lipschitz_upper_bound([turn, np.zeros((3, 2))]) == 0.0


SLICED = ew.Serial(ew.Flatten(), ew.Dense(1))
NO_MATRICES = {
    "filters": (ew.Conv((3,)), (8, 3), r"\.weight has shape \(3, 3, 16\).*a convolution as the matrix"),
    "filters of images": (ew.Conv((3, 3)), (4, 4, 3), r"\.weight has shape \(3, 3, 3, 16\)"),
    "filters of each site": (ew.layers.ConvLocal((3,)), (8, 3), r"\.weight has shape \(9, 8, 16\)"),
    "heads": (ew.layers.SelfAttention(heads=2), (5, 3), r"has shape \(2, 3, 16\)"),
    "a stack": (ew.Repeat(ew.Serial(ew.Dense(b_std=1.0), ew.Relu()), 3), (5,), r"has shape \(2, 16, 16\).*one by one"),
}


@pytest.mark.parametrize("case", NO_MATRICES)
def test_arrays_that_do_not_say_how_they_are_multiplied_are_refused_by_name(case):
    layer, shape, message = NO_MATRICES[case]
    params = ew.Serial(layer, SLICED).init(jax.random.key(0), shape, width=16, parametrization="standard")
    with pytest.raises(ew.InputError, match=message):
        lipschitz_upper_bound(params)


def test_the_ways_out_are_bounds():
    """A stack as a list; a convolution as the matrix of all its inputs and outputs."""
    rng = RNG(11)
    stack, filters = rng.normal(size=(3, 4, 4)), rng.normal(size=(3, 2, 5))
    conv = lambda x: sum(np.roll(x, shift, 0) @ w for shift, w in enumerate(filters))
    unrolled = np.stack([conv(e.reshape(8, 2)).ravel() for e in np.eye(16)])
    chain = lambda x: np.maximum(np.maximum(x @ stack[0], 0) @ stack[1], 0) @ stack[2]
    for f, params, shape in ((conv, [unrolled], (8, 2)), (chain, [*stack], (4,))):
        x, step = rng.normal(size=(2, 300, *shape))
        slope = max(np.linalg.norm(f(a + h) - f(a)) / np.linalg.norm(h) for a, h in zip(x, 1e-3 * step, strict=True))
        bound = lipschitz_upper_bound(params)
        assert 0.05 * bound < slope <= bound
