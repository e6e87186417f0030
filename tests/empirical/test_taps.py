"""The factors of every model in the zoo against brute-force Jacobians, in both forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from empirical.models_sequences import ZOO
from everwide.empirical._factors import Job, Lookup, Outer, Outputs, Part, Plain, decide, ready, tile
from everwide.empirical._factors._contract import summed_outputs
from everwide.empirical._factors._forms import Form
from everwide.empirical._trace import JaxTangents, traced
from everwide.testing._draws import quick_jit

pytestmark = pytest.mark.wide

TOLERANCE = 1e-10 if jnp.zeros(()).dtype == np.float64 else 1e-4


def brute_force(f, params, x):
    """`(n, k, n, k)`, from Jacobians with respect to all floating-point leaves."""
    leaves, structure = jax.tree.flatten(params)
    trained = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def outputs(some, one):
        changed = dict(zip(trained, some, strict=True))
        return jnp.ravel(f(jax.tree.unflatten(structure, [changed.get(i, leaf) for i, leaf in enumerate(leaves)]), one))

    jacobians = jax.vmap(lambda one: jax.jacrev(outputs)([leaves[i] for i in trained], one))(x)
    flat = jnp.concatenate([j.reshape(*j.shape[:2], -1) for j in jacobians], -1)
    return jnp.einsum("nkp,mlp->nkml", flat, flat)


def all_in(form, recipe):
    """One form for all, whatever was decided."""
    return recipe._replace(forms=(form,) * len(recipe.forms))


@pytest.mark.parametrize("name", ZOO)
def test_factors_against_brute_force(name):
    f, params, x, plain = ZOO[name]
    plan = traced(f, params, jax.tree.map(lambda a: a[0], x)).plan
    assert {plan.names[i] for i in plan.plain} == plain
    job = Job(4, 4, Outputs.FULL, tuple((path, "") for path in plan.names))

    @quick_jit
    def run(leaves, x):
        parts = JaxTangents(leaves, plan).factors(x, jnp.eye(plan.outputs, dtype=jnp.float32))
        forms = [ready(parts, all_in(form, decide(parts, job))) for form in Form]
        return brute_force(f, params, x), [tile(factors, factors, Outputs.FULL)[""] for factors in forms]

    expected, found = run(jax.tree.leaves(params), x)
    for kernel in found:
        assert np.abs(kernel - expected).max() <= TOLERANCE * np.abs(expected).max()


def draw(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), float)


FACTORS = {
    "dense": lambda n: Outer(draw(n, 1, 1, 5), draw(n, 3, 1, 1, 4)),
    "tokens": lambda n: Outer(draw(n, 1, 6, 5), draw(n, 3, 1, 6, 4)),
    "groups": lambda n: Outer(draw(n, 2, 1, 5), draw(n, 3, 2, 1, 20)),
    "narrow groups": lambda n: Outer(draw(n, 7, 1, 5), draw(n, 3, 7, 1, 1)),
    "many groups of tokens": lambda n: Outer(draw(n, 6, 3, 2), draw(n, 3, 6, 3, 2)),
    "rows of a table": lambda n: Lookup(jnp.minimum((draw(n, 4) * 3).astype(int), 3), draw(n, 3, 4, 5), 4),
    "plain": lambda n: Plain(draw(n, 3, 11)),
}


def jacobian(factor):
    """`(n, k, size)`, one example, output and token after the other."""
    if isinstance(factor, Plain):
        return np.asarray(factor.jacobian)
    left, right = (factor.indices if isinstance(factor, Lookup) else factor.left), np.asarray(factor.right)
    found = np.zeros((*right.shape[:2], factor.size()))
    for n, k in np.ndindex(*found.shape[:2]):
        if isinstance(factor, Lookup):
            table = np.zeros((factor.rows, right.shape[-1]))
            for row, value in zip(np.asarray(left[n]), right[n, k], strict=True):
                if row >= 0:
                    table[row] += value
        else:
            table = [
                sum(np.outer(a, b) for a, b in zip(*g, strict=True)) for g in zip(left[n], right[n, k], strict=True)
            ]
        found[n, k] = np.ravel(table)
    return found


@pytest.mark.parametrize("outputs", Outputs)
def test_contractions_of_drawn_factors(outputs):
    a, b = ({name: make(n) for name, make in FACTORS.items()} for n in (3, 2))
    assert any((factor.indices < 0).any() for factor in (a["rows of a table"], b["rows of a table"]))
    groups = tuple((name, name) for name in FACTORS)

    @quick_jit
    def run(a, b):
        sides = [tuple(Part((name,), factor) for name, factor in side.items()) for side in (a, b)]
        recipes = [all_in(form, decide(sides[0], Job(3, 2, outputs, groups))) for form in Form]
        return [tile(ready(sides[0], recipe), ready(sides[1], recipe), outputs) for recipe in recipes]

    for found in run(a, b):
        for name, kernel in found.items():
            expected = np.einsum("nkp,mlp->nkml", jacobian(a[name]), jacobian(b[name]))
            summed = {Outputs.FULL: expected, Outputs.DIAGONAL: np.einsum("nkmk->nmk", expected)}
            expected = summed.get(outputs, np.einsum("nkmk->nm", expected))
            np.testing.assert_allclose(kernel, expected, rtol=100 * TOLERANCE, atol=TOLERANCE)


def test_long_products_are_summed_in_stretches():
    a, b = draw(3, 2, 400_001), draw(2, 2, 400_001)
    expected = np.einsum("nkp,mkp->nm", a, b)
    found = summed_outputs(Plain(a), Plain(b))
    np.testing.assert_allclose(found, expected, rtol=100 * TOLERANCE, atol=400 * TOLERANCE)


def test_a_weight_and_its_bias_share_their_cotangents():
    right = draw(3, 2, 1, 1, 4)
    parts = Part(("w",), Outer(draw(3, 1, 1, 5), right)), Part(("b",), Outer(jnp.ones((3, 1, 1, 1)), right))
    job = Job(3, 3, Outputs.FULL, (("w", ""), ("b", "")))
    (merged,) = ready(parts, all_in(Form.FACTORS, decide(parts, job)))[""]
    assert merged.left.shape == (3, 1, 1, 6)
    apart = ready(parts, all_in(Form.FACTORS, decide(parts, job._replace(groups=(("w", "w"), ("b", "b"))))))
    assert [len(factors) for factors in apart.values()] == [1, 1]
