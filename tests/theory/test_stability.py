"""Laws of large rates, against weights that are trained, optimizers as optax has them, and an integrator."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.integrate

import everwide as ew
from everwide.theory import stability

X64 = functools.partial(jax.enable_x64, True)


def quadratic_descent(multiple, target, steps, width=30, inputs=3):
    """A ReLU network to the second order in its weights, trained on one example: residuals, curvatures, and |x|^2."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=inputs)
    with X64():

        def network(flat):
            u, v = flat[: width * inputs].reshape(width, inputs), flat[width * inputs :]
            return v @ jax.nn.relu(u @ x) / width**0.5

        start = jnp.asarray(rng.normal(size=width * (inputs + 1)))
        first, slope, bend = (np.asarray(d(start)) for d in (network, jax.grad(network), jax.hessian(network)))
    rate, step = multiple / (slope @ slope), np.zeros(len(slope))
    course = []
    for _ in range(steps + 1):
        tangent, residual = slope + bend @ step, first + slope @ step + step @ bend @ step / 2 - target
        course.append((residual, tangent @ tangent))
        step = step - rate * residual * tangent
    return np.asarray(course).T, rate, x @ x / width


@pytest.mark.parametrize(
    ("multiple", "phase", "steps"), [(1.3, "lazy", 60), (3.2, "catapult", 60), (4.6, "divergent", 5)]
)
def test_two_numbers_are_a_network_to_second_order(multiple, phase, steps):
    (residuals, curvatures), rate, scale = quadratic_descent(multiple, 0.7, steps)
    run = stability.catapult(residuals[0], curvatures[0], rate, scale=scale, target=0.7, steps=steps)
    np.testing.assert_allclose(run.residuals, residuals, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(run.curvatures, curvatures, rtol=1e-7)
    longer = stability.catapult(residuals[0], curvatures[0], rate, scale=scale, target=0.7)
    assert longer.phase == phase
    if phase == "lazy":
        assert longer.onset == 0
        assert longer.curvatures[-1] == pytest.approx(longer.curvatures[0], rel=0.1)
    if phase == "catapult":
        assert abs(longer.residuals[longer.onset]) > 3 * abs(longer.residuals[0])
        assert rate * longer.curvatures[-1] < 2


@pytest.mark.parametrize("residual", [0.1, -0.6, 2.0])
def test_wide_networks_diverge_from_four_on(residual):
    phases = [
        stability.catapult(residual, 1.0, multiple, scale=1e-6, target=0.3, steps=2000).phase
        for multiple in (1.9, 2.1, 3.9, 4.1)
    ]
    assert phases == ["lazy", "catapult", "catapult", "divergent"]


def test_the_onset_grows_with_the_logarithm_of_the_width():
    """The residual grows by |1 - multiple| a step, until it has reached the root of the width."""
    widths, first = np.array([1e4, 1e6, 1e8, 1e10]), np.geomspace(0.2, 2, 20)
    onsets = [[stability.catapult(r, 1.0, 2.6, scale=1 / width).onset for r in first] for width in widths]
    slope = np.polyfit(np.log(widths), np.mean(onsets, 1), 1)[0]
    assert slope == pytest.approx(1 / (2 * np.log(1.6)), rel=0.03)


def test_what_is_not_decided_is_not_said():
    run = stability.catapult(1.0, 1.0, 3.0, scale=1e-12, steps=10)
    assert run.phase == "undecided"
    assert run.onset == 10
    assert stability.catapult(1.0, 1.0, 3.0, scale=0.0, steps=400).phase == "divergent"
    assert stability.catapult(0.0, 1.0, 3.0, scale=0.1).phase == "lazy"


RATE = 0.01
OPTIMIZERS = {
    "descent": (optax.sgd(RATE), {}),
    "heavy ball": (optax.sgd(RATE, momentum=0.8), {"momentum": 0.8}),
    "nesterov": (optax.sgd(RATE, momentum=0.8, nesterov=True), {"momentum": 0.8, "nesterov": True}),
    # With gradients far below eps, Adam divides by eps, which is 1: its preconditioner stands still.
    "rmsprop": (optax.adam(RATE, b1=0.0, eps=1.0), {"b1": 0.0}),
    "adam": (optax.adam(RATE, b1=0.9, eps=1.0), {"b1": 0.9}),
    "nadam": (optax.nadam(RATE, b1=0.6, eps=1.0), {"b1": 0.6, "nesterov": True}),
}


@pytest.mark.wide
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("factor", "grows"), [(0.97, False), (1.03, True)])
def test_optimizers_are_unstable_from_their_edge_on(name, factor, grows):
    optimizer, options = OPTIMIZERS[name]
    curvature = factor * stability.edge(RATE, **options)

    def step(state, _):
        place, memory = state
        with jax.numpy_dtype_promotion("standard"):
            update, memory = optimizer.update(curvature * place, memory)
        return (place + update.astype(place.dtype), memory), jnp.abs(place)

    with X64():
        start = jnp.asarray(1e-30)
        _, sizes = jax.lax.scan(step, (start, optimizer.init(start)), length=800)
    early, late = (float(jnp.max(part)) for part in (sizes[300:400], sizes[-100:]))
    assert (late > 2 * early) == grows
    assert (late < early / 2) != grows


def descent_at_the_edge(steps, sharpening=1e-4):
    """A loss whose curvature along `a` bends with `b`, and which falls along `b`; the rate is 1."""
    slope = jax.grad(lambda a, b: a**2 * (2 + jnp.sin(b) + b**2 / 50) / 2 - sharpening * b, (0, 1))

    def step(place, _):
        return tuple(p - s for p, s in zip(place, slope(*place), strict=True)), jnp.stack(place)

    with X64():
        _, course = jax.lax.scan(step, (jnp.asarray(4e-3), jnp.asarray(0.0)), length=steps)
    return np.asarray(course).T


@pytest.mark.wide
def test_descent_at_the_edge_cycles_as_predicted():
    a, b = descent_at_the_edge(4000)
    cycle = stability.self_stabilization(4e-3, 1.0, sharpening=1e-4, restoring=1.0, steps=600)
    np.testing.assert_allclose(cycle.displacements[:600], a[:600], atol=0.03 * np.abs(a).max())
    np.testing.assert_allclose(cycle.excesses[:600], np.sin(b[:600]), atol=0.03 * np.abs(b).max())
    assert cycle.resting == pytest.approx(np.sqrt(2e-4))
    first = np.abs(a[: round(cycle.period)])
    assert cycle.largest == pytest.approx(first.max(), rel=0.03)
    assert cycle.highest == pytest.approx(b[: round(cycle.period)].max(), rel=0.05)
    rises = np.flatnonzero((b[:-1] < 0) & (b[1:] >= 0))
    assert cycle.period == pytest.approx(rises[0], rel=0.03)


@pytest.mark.parametrize("displacement", [1e-6, 0.4, 1 - 1e-7, 1.0, 3.0])
@pytest.mark.parametrize("excess", [0.0, -1.5])
def test_the_cycle_is_that_of_small_steps(displacement, excess):
    """Rates are small: an integrator follows `d log|x| / dt = y`, `dy / dt = sharpening - restoring x^2 / 2`."""
    up, rate = 2.0, 1e-3
    cycle = stability.self_stabilization(displacement, rate, sharpening=up, restoring=4.0, excess=excess, steps=1)

    def slope(_, state):
        return state[1], up - 2 * np.exp(2 * state[0])

    def widest(_, state):
        return state[1]

    def highest(_, state):
        return slope(None, state)[1]

    widest.direction = highest.direction = -1
    start, end = (np.log(displacement), excess), 3.2 * rate * cycle.period
    course = scipy.integrate.solve_ivp(
        slope, (0, end), start, "DOP853", rtol=1e-12, atol=1e-13, events=(widest, highest), max_step=end / 200
    )
    if (displacement, excess) == (1.0, 0.0):
        assert cycle[2:] == pytest.approx((1.0, 1.0, 0.0, np.pi / rate))
        return
    assert cycle.largest == pytest.approx(np.exp(course.y_events[0][0, 0]), rel=1e-6)
    assert cycle.highest == pytest.approx(course.y_events[1][0, 1], rel=1e-4)
    assert cycle.period == pytest.approx(np.diff(course.t_events[0])[0] / rate, rel=1e-6)


@pytest.mark.slow
@pytest.mark.wide
def test_the_central_flow_is_the_middle_of_swings():
    """Of the loss above: the curvature stays at the edge; simulated, the mean square of swings is the variance."""
    a, b = descent_at_the_edge(20_000)
    with X64():
        flow = stability.central_flow(
            lambda w: w[0] ** 2 * (2 + jnp.sin(w[1]) + w[1] ** 2 / 50) / 2 - 1e-4 * w[1],
            jnp.array([4e-3, 0.0]),
            1.0,
            steps=30,
        )
    assert flow.curvatures[-1] == pytest.approx(2, rel=2e-3)
    assert flow.variances[-5:].mean() == pytest.approx(np.mean(a**2), rel=0.05)
    losses = a**2 * (2 + np.sin(b) + b**2 / 50) / 2 - 1e-4 * b
    assert flow.mean_losses[-5:].mean() == pytest.approx(losses.mean(), rel=0.05)


def tanh_network():
    rng = np.random.default_rng(1)
    x, y = jnp.asarray(rng.normal(size=(16, 4))), jnp.asarray(np.sign(rng.normal(size=16)))
    weights = [jnp.asarray(rng.normal(size=size) / size[0] ** 0.5) for size in ((4, 10), (10, 10), (10,))]
    return (lambda w: jnp.mean((jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2] - y) ** 2) / 2), weights


@pytest.mark.slow
@pytest.mark.wide
def test_descent_swings_around_the_central_flow():
    """A network of tanh at the edge: where descent is on average, and its mean loss; gradient flow is elsewhere."""
    with X64():
        value, start = tanh_network()
        rate, steps, last = 0.3, 560, 40
        slope = jax.grad(value)

        def descend(w, _):
            return jax.tree.map(lambda p, g: p - rate * g, w, slope(w)), (w, value(w))

        _, (courses, losses) = jax.lax.scan(descend, start, length=steps)
        flow = stability.central_flow(value, start, rate, steps=steps)
        quarter = lambda w, _: (jax.tree.map(lambda p, g: p - rate / 4 * g, w, slope(w)), None)
        unswung, _ = jax.lax.scan(quarter, start, length=4 * steps)
        middle = jax.tree.map(lambda p: jnp.mean(p[-last:], 0), courses)
        sizes = [
            float(sum(jnp.sum((p - q) ** 2) for p, q in zip(middle, other, strict=True))) ** 0.5
            for other in (flow.params, unswung)
        ]
    assert sizes[0] < sizes[1] / 2
    assert flow.curvatures[-200:] == pytest.approx(2 / rate, rel=3e-3)
    for begin in (375, 450, 520):
        told, seen = (float(np.mean(part[begin : begin + last])) for part in (flow.mean_losses, losses))
        assert told == pytest.approx(seen, rel=0.25)
        assert flow.losses[begin : begin + last].mean() < 0.75 * seen


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: stability.central_flow(lambda w: w, jnp.ones(2), 0.1, steps=2), "expected one number"),
        (lambda: stability.central_flow(lambda w: 1.0, jnp.arange(2), 0.1, steps=2), "expected real ones"),
        (lambda: stability.central_flow(lambda w: 1.0, [], 0.1, steps=2), "0 numbers"),
        (lambda: stability.central_flow(lambda w: jnp.sum(w**2) * jnp.nan, jnp.ones(2), 0.1, steps=2), "becomes nan"),
        (lambda: stability.edge(0.0), "above 0"),
        (lambda: stability.edge(0.1, b1=1.0), "below 1"),
        (lambda: stability.edge(0.1, b1=0.9, momentum=0.9), "one of them"),
        (lambda: stability.catapult(np.nan, 1.0, 1.0, scale=0.1), "residual=nan: expected a finite number"),
        (lambda: stability.catapult(1.0, -1.0, 1.0, scale=0.1), "curvature=-1.0"),
        (lambda: stability.catapult(1.0, 1.0, 1.0, scale=0.1, steps=0), "1 or more"),
        (lambda: stability.self_stabilization(0.0, 0.1, sharpening=1.0, restoring=1.0), "above 0"),
        (lambda: stability.self_stabilization(0.1, 0.1, sharpening=-1.0, restoring=1.0), "sharpening=-1.0"),
        (lambda: stability.self_stabilization(1e200, 0.1, sharpening=1.0, restoring=1.0), "no small steps"),
        (lambda: stability.self_stabilization(1.0, 0.1, sharpening=1.0, restoring=1.0, excess=1e80), "no small steps"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ew.InputError, match=message):
        run()
