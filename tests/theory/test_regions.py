"""Linear regions against dense sampling, exact rational arithmetic, enumeration and simulated networks."""

import itertools
import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.theory.regions as rg
from everwide._checks import hidden_widths

pytestmark = pytest.mark.once


def drawn(rng, widths, bias_variance=0.3):
    """He initialization: matrices (out, in) and biases."""
    return [
        (rng.normal(size=(n, m)) * np.sqrt(2 / m), np.sqrt(bias_variance) * rng.normal(size=n))
        for m, n in itertools.pairwise(widths)
    ]


def parameters(net, shape, seed, **options):
    """As `net.init` draws them, without compiling it."""
    rng = np.random.default_rng(seed)
    like = eqx.filter_eval_shape(lambda key: net.init(key, shape, **options), jax.random.key(0))
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype), like)


def on_the_whole_line(net, params):
    return rg.line_regions(net, params, [-np.inf], [np.inf]).breakpoints


def sampled_count(matrices, p, q, points):
    """Pieces seen by the gradient at many points of the segment."""
    t = np.linspace(0, 1, points)
    value, slope = p[:, None] + np.outer(q - p, t), np.repeat((q - p)[:, None], points, 1)
    for layer, (w, b) in enumerate(matrices):
        value, slope = w @ value + b[:, None], w @ slope
        if layer < len(matrices) - 1:
            on = value > 0
            value, slope = value * on, slope * on
    return 1 + int(np.sum(np.any(np.abs(np.diff(slope)) > 1e-9, 0)))


def rational_breakpoints(matrices, p, q):
    """Where a ReLU network with rational weights, and where any of its units bends on a segment, without rounding."""
    times = [Fraction(0), Fraction(1)]
    values = [[Fraction(v) for v in p], [Fraction(v) for v in q]]
    for layer, (w, b) in enumerate(matrices):
        values = [
            [sum(wi * vi for wi, vi in zip(row, v, strict=True)) + c for row, c in zip(w, b, strict=True)]
            for v in values
        ]
        if layer == len(matrices) - 1:
            break
        found = dict(zip(times, values, strict=True))
        for (t0, u), (t1, v) in itertools.pairwise(zip(times, values, strict=True)):
            for a, c in zip(u, v, strict=True):
                if a * c < 0:
                    part = a / (a - c)
                    found[t0 + part * (t1 - t0)] = [x + part * (y - x) for x, y in zip(u, v, strict=True)]
        times = sorted(found)
        values = [[max(z, Fraction(0)) for z in found[t]] for t in times]
    pieces = list(itertools.pairwise(zip(times, values, strict=True)))
    slopes = [[(d - c) / (t1 - t0) for c, d in zip(u, v, strict=True)] for (t0, u), (t1, v) in pieces]
    bends = [t for t, before, after in zip(times[1:], slopes, slopes[1:], strict=False) if before != after]
    return bends, times[1:-1]


def test_the_exact_count_is_that_of_dense_sampling():
    rng = np.random.default_rng(0)
    for _ in range(5):
        matrices = drawn(rng, [3, 12, 12, 12, 2])
        p, q = 2 * rng.normal(size=(2, 3))
        found = rg.line_regions(ew.Relu(), matrices, p, q)
        assert found.count == sampled_count(matrices, p, q, 100_001)
        assert found.activation_count >= found.count


def test_coinciding_breakpoints_as_in_rational_arithmetic():
    """Small whole weights make units bend at one point, touch their knot, vanish, and cancel each other."""
    rng = np.random.default_rng(1)
    for case in range(40):
        whole = [(rng.integers(-2, 3, (n, m)), rng.integers(-2, 3, n)) for m, n in ((2, 6), (6, 6), (6, 5), (5, 1))]
        p, q = rng.integers(-3, 4, (2, 2))
        q = q + (p == q).all()
        exact, units_bend = rational_breakpoints([(w.tolist(), b.tolist()) for w, b in whole], p.tolist(), q.tolist())
        units = np.exp(rng.normal(size=3))  # rounded: the same function, up to its scale, with no exact zeros left
        scale, matrices = 1.0, []
        for (w, b), unit in zip(whole, (*units, 1.0), strict=True):
            scale *= unit
            matrices.append((w * unit, b * scale))
        found = rg.line_regions(ew.Relu(), matrices, p, q)
        assert found.count == len(exact) + 1, case
        assert found.activation_count == len(units_bend) + 1, case
        np.testing.assert_allclose(found.breakpoints, [float(t) for t in exact], rtol=0, atol=1e-12)


def test_a_piece_too_short_for_a_slope_does_not_hide_a_bend():
    hidden = np.ones((4, 1)), np.array([-0.5, -0.5 - 1e-12, 1.0, 2.0])
    out = np.array([[1.0, 1.0, 1e4, -1e4]]), np.zeros(1)
    found = rg.line_regions(ew.Relu(), [hidden, out], [0.0], [1.0])
    np.testing.assert_allclose(found.breakpoints, [0.5], atol=1e-11)
    assert found.activation_count == 3


def test_units_are_exactly_on_their_knots():
    (hidden,) = drawn(np.random.default_rng(10), [3, 40])
    found = rg.line_regions(
        ew.activations.Abs(), [hidden, (np.eye(40), np.zeros(40))], [-1.0, -2.0, 0.5], [2.0, 1.0, 1.0]
    )
    assert found.count > 10
    assert np.sum(found.values == 0) == found.count - 1


def test_layers_of_all_kinds_become_the_function_they_are():
    net = ew.Serial(
        ew.Conv((3,), width=4, b_std=0.3),
        ew.Relu(),
        ew.AvgPool((2,)),
        ew.Flatten(),
        ew.Dense(8),
        ew.Residual(ew.LeakyRelu(0.3), ew.Dense(8, b_std=0.4)),
        ew.activations.HardTanh(),
        ew.Repeat(
            ew.Serial(ew.Dense(8, b_std=0.2), ew.Dropout(0.5), ew.Dense(8), ew.activations.TwoSlope(-0.5, 1.5)), 3
        ),
        ew.Concat(ew.Dense(3), ew.Serial(ew.Dense(4), ew.activations.Abs())),
        ew.layers.Scale(2.0),
        ew.Dense(2),
    )
    params = parameters(net, (6, 2), 1)
    p, q = np.random.default_rng(2).normal(size=(2, 6, 2))
    found = rg.line_regions(net, params, p, q)
    assert found.count >= 15
    times = np.linspace(0, 1, 1001)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: jnp.asarray(a, float), params)
        exact = np.asarray(jax.jit(jax.vmap(lambda x: net.apply(wide, x)))(p + times[:, None, None] * (q - p)))
    ends = [0.0, *found.breakpoints, 1.0]
    for k in range(2):
        np.testing.assert_allclose(np.interp(times, ends, found.values[:, k]), exact[:, k], rtol=0, atol=1e-13)
    assert np.all(np.any(np.abs(np.diff(found.slopes, axis=0)) > 1e-9, 1))


def test_both_parametrizations_of_a_dense_layer():
    net = ew.Serial(ew.Dense(6, w_std=1.3, b_std=0.7), ew.Relu(), ew.Dense(1, w_std=0.4, b_std=0.1))
    for law in ("ntk", "standard"):
        params = parameters(net, (2,), 3, parametrization=law)
        ends = np.array([[1.0, -2.0], [-1.5, 1.0]])
        values = rg.line_regions(net, params, *ends).values
        apply = jax.vmap(lambda x, params=params: net.apply(params, x))
        np.testing.assert_allclose(values[[0, -1]], apply(jnp.asarray(ends, float)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 7, 12])
def test_the_sawtooth_is_exponential_in_its_depth(depth):
    net, params = rg.sawtooth(depth)
    regions = rg.line_regions(net, params, [0.0], [1.0])
    assert regions.count == 2**depth
    np.testing.assert_array_equal(regions.breakpoints, np.arange(1, 2**depth) / 2**depth)
    np.testing.assert_array_equal(regions.values[:, 0], np.arange(2**depth + 1) % 2)
    assert rg.line_regions(net, params, [-1.0], [2.0]).count == 2**depth + 2
    np.testing.assert_allclose(on_the_whole_line(net, params), np.arange(2**depth + 1) / 2**depth, rtol=0, atol=1e-15)
    assert sum(a.size for a in rg.activation_pattern(net, params, [[0.3]])) == 3 * depth
    found = net.apply(params, jnp.asarray([0.3], float))
    np.testing.assert_allclose(found, 1 - abs(1 - 2 * ((0.3 * 2 ** (depth - 1)) % 1)), atol=2e-3)


def test_breakpoints_of_one_layer_and_of_the_whole_line():
    rng = np.random.default_rng(4)
    (w, b), out = drawn(rng, [1, 30, 1])
    expected = np.sort(-b / w[:, 0])
    np.testing.assert_allclose(on_the_whole_line(ew.Relu(), [(w, b), out]), expected, rtol=1e-12)
    inside = expected[(expected > -1) & (expected < 2)]
    np.testing.assert_allclose(
        3 * rg.line_regions(ew.Relu(), [(w, b), out], [-1], [2]).breakpoints - 1, inside, rtol=1e-12
    )
    half = rg.line_regions(ew.Relu(), [(w, b), out], [0.5], [np.inf])
    np.testing.assert_allclose(half.breakpoints, expected[expected > 0.5], rtol=1e-12)
    deep = drawn(rng, [1, 20, 20, 1])
    segment = rg.line_regions(ew.Relu(), deep, [-1e4], [1e4])
    everywhere = on_the_whole_line(ew.Relu(), deep)
    np.testing.assert_allclose(everywhere, 2e4 * segment.breakpoints - 1e4, rtol=0, atol=1e-9)


def cells(normals, offsets):
    """Cells of an arrangement of lines in the plane: beside every vertex, and far out."""
    points = []
    for pair in itertools.combinations(range(len(normals)), 2):
        a = normals[list(pair)]
        vertex = np.linalg.solve(a, -offsets[list(pair)])
        points += [vertex + np.linalg.solve(a, 1e-7 * np.array(s)) for s in itertools.product((1, -1), repeat=2)]
    angle = np.linspace(0, 2 * np.pi, 4001)
    return np.concatenate([points, 1e6 * np.stack([np.cos(angle), np.sin(angle)], 1)])


def test_one_layer_has_as_many_regions_as_zaslavsky_says():
    rng = np.random.default_rng(5)
    (w, b), out = drawn(rng, [2, 7, 1])
    patterns = rg.activation_pattern(ew.Relu(), [(w, b), out], cells(w, b))[0]
    assert len(np.unique(patterns, axis=0)) == rg.max_regions(2, [7]) == rg.max_regions(2, [7], bound="lower") == 29


def serra(inputs, widths):
    """The bound of Serra et al. by its definition."""
    if not widths:
        return 1
    n, rest = widths[0], widths[1:]
    return sum(math.comb(n, j) * serra(min(inputs, n - j), rest) for j in range(min(inputs, n) + 1))


def test_bounds_of_deep_networks():
    for inputs, widths in itertools.product((1, 2, 3, 5), ([7], [3, 3], [2, 5, 3], [6, 1, 4], [3, 3, 3, 3], [8, 2])):
        assert rg.max_regions(inputs, widths) == serra(inputs, widths)
        if min(widths[:-1], default=inputs) >= inputs:
            assert rg.max_regions(inputs, widths, bound="lower") <= rg.max_regions(inputs, widths)
    assert rg.max_regions(1000, [10]) == 2**10
    assert rg.max_regions(784, [500] * 10).bit_length() > 4000
    assert rg.max_regions(1, [2] * 10, bound="lower") == 2**9 * 3  # as many as sawteeth of two units a layer
    rng = np.random.default_rng(6)
    grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 250)] * 2), -1).reshape(-1, 2)
    patterns = rg.activation_pattern(ew.Relu(), drawn(rng, [2, 4, 4, 1]), grid)
    seen = len(np.unique(np.concatenate(patterns, 1), axis=0))
    assert 10 < seen <= rg.max_regions(2, [4, 4]) == 121


def test_regions_are_convex_and_affine():
    net = ew.Serial(ew.Dense(9), ew.Relu(), ew.Sum(ew.Dense(6), ew.Dense(6)), ew.activations.HardTanh(), ew.Dense(2))
    params = parameters(net, (4,), 0)
    rng = np.random.default_rng(7)
    x = rng.normal(size=4)
    region = rg.region_halfspaces(net, params, x)
    points = x + 0.3 * rng.normal(size=(3000, 4))
    join = lambda rows: np.concatenate(rg.activation_pattern(net, params, rows), 1)
    same = np.all(join(points) == join(x[None]), 1)
    assert 50 < same.sum() < 2950
    np.testing.assert_array_equal(region.contains(points), same)
    inside = points[same]
    assert np.all(join((inside[1:] + inside[:-1]) / 2) == join(x[None]))
    values = [rg.line_regions(net, params, x, point).values[-1] for point in inside[:3]]
    np.testing.assert_allclose(values, inside[:3] @ region.slope.T + region.intercept, rtol=0, atol=1e-13)
    assert rg.line_regions(net, params, x, inside[0]).count == 1


def test_slopes_and_values_out_to_infinity():
    """`|x - 1| + x`: slope 0 and value 1 on the left, slope 2 on the right; a finite cut says the same."""
    matrices = [(np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([-1.0, 1.0, 0.0, 0.0])), ([[1, 1, 1, -1]], [0.0])]
    pieces = rg.line_regions(ew.Relu(), matrices, [-np.inf], [np.inf])
    np.testing.assert_allclose(pieces.breakpoints, [1.0], rtol=1e-15)
    np.testing.assert_allclose(pieces.values.ravel(), [1.0, 1.0, np.inf], rtol=1e-15)
    np.testing.assert_allclose(pieces.slopes.ravel(), [0.0, 2.0], atol=1e-15)
    cut = rg.line_regions(ew.Relu(), matrices, [-3.0], [5.0])
    np.testing.assert_allclose(cut.slopes.ravel() / 8, pieces.slopes.ravel(), atol=1e-15)
    downwards = rg.line_regions(ew.Relu(), [(np.array([[-2.0]]), np.zeros(1))], [-np.inf], [np.inf])
    assert (downwards.count, downwards.slopes.tolist()) == (1, [[-2.0]])
    assert downwards.values.ravel().tolist() == [np.inf, -np.inf]


RELU = ew.Serial(ew.Dense(3), ew.Relu(), ew.Dense(1))
PARAMS = parameters(RELU, (2,), 0)
PLAIN = [(np.ones((3, 2)), np.zeros(3)), (np.ones((1, 3)), np.zeros(1))]
BAD = {
    "a smooth activation": (lambda: rg.line_regions(ew.Erf(), PLAIN, [0, 0], [1, 1]), "Erf.*not piecewise linear"),
    "a smooth layer": (
        lambda: rg.line_regions(ew.Serial(ew.Dense(3), ew.Gelu()), (PARAMS[0], ()), [0, 0], [1, 1]),
        r"Serial\[1\] Gelu.*not piecewise linear",
    ),
    "a normalization": (
        lambda: rg.line_regions(ew.Serial(ew.LayerNorm()), ((),), [0, 0], [1, 1]),
        r"Serial\[0\] LayerNorm cannot be cut.*nothing is known",
    ),
    "a jump": (lambda: rg.expected_regions(ew.Serial(ew.Dense(3), ew.activations.Step()), [0.0], [1.0]), "Step"),
    "one point": (lambda: rg.line_regions(RELU, PARAMS, [1, 0], [1, 0]), "same point"),
    "not finite": (lambda: rg.line_regions(RELU, PARAMS, [1, np.nan], [1, 0]), "x1 has shape.*finite"),
    "two shapes": (lambda: rg.line_regions(RELU, PARAMS, [1, 0], [1, 0, 0]), "one shape"),
    "another dimension": (
        lambda: rg.line_regions(RELU, PARAMS, [1, 0, 0], [1, 0, 1]),
        r"Serial\[0\] Dense takes 2",
    ),
    "other parameters": (lambda: rg.line_regions(RELU, PARAMS[:2], [1, 0], [1, 1]), "3 parts"),
    "no weight": (lambda: rg.line_regions(RELU, ((), (), ()), [1, 0], [1, 1]), "needs a weight"),
    "no pairs": (lambda: rg.line_regions(ew.Relu(), [np.ones((2, 2))], [1, 0], [1, 1]), "pair"),
    "a transposed matrix": (
        lambda: rg.line_regions(ew.Relu(), [(np.ones((2, 3)), np.ones(3))], [0], [1]),
        r"\(out, in\)",
    ),
    "infinite weights": (
        lambda: rg.line_regions(ew.Relu(), [(np.full((3, 2), np.inf), np.ones(3))], [0, 0], [1, 1]),
        "not finite",
    ),
    "an empty interval": (lambda: rg.line_regions(*rg.sawtooth(1), [np.inf], [1.0]), "ascending order"),
    "no depth": (lambda: rg.sawtooth(0), "depth=0"),
    "no inputs": (lambda: rg.max_regions(0, [3]), "inputs=0"),
    "no layers": (lambda: rg.max_regions(2, []), "hidden layers"),
    "an empty layer": (lambda: rg.max_regions(2, [3, 0]), r"widths\[1\]=0: expected a whole number"),
    "a bare number": (lambda: hidden_widths(7), r"widths=7: .* as in \[7\]"),
    "too narrow to fold": (lambda: rg.max_regions(3, [2, 3], bound="lower"), "at least as wide"),
    "no such bound": (lambda: rg.max_regions(3, [2, 3], bound="middle"), "'upper' or 'lower'"),
    "an open width": (lambda: rg.expected_regions(ew.Serial(ew.Dense(), ew.Relu()), [0.0], [1.0]), "open width"),
    "sites": (lambda: rg.expected_regions(RELU, np.zeros((2, 2)), np.ones((2, 2))), r"\(channels,\)"),
    "through the origin": (lambda: rg.expected_regions(RELU, [-1.0, 0.0], [1.0, 0.0]), "no biases"),
    "another point": (lambda: rg.region_halfspaces(RELU, PARAMS, [1.0, 2.0]).contains([[1.0]]), "expected 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_lines_that_fit_no_memory_are_refused(monkeypatch):
    monkeypatch.setattr("everwide._engine._inputs.available_memory", lambda: 50_000)
    with pytest.raises(ew.MemoryBudgetError, match="breakpoints"):
        rg.line_regions(*rg.sawtooth(12), [0.0], [1.0])
