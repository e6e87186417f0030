"""Complex outputs and parameters, centred Jacobians, and several devices: against Jacobians by hand."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import everwide as ew
import everwide.empirical as emp
from empirical.models_zoo import rows, tokens, w
from everwide.empirical._models import any_model
from everwide.empirical._ntk import tangents_of

pytestmark = pytest.mark.as_users  # symmetry is bitwise as users compile
TOLERANCE = 1e-10 if jnp.zeros(()).dtype == np.float64 else 2e-4


def c(*shape):
    return lax.complex(w(*shape), w(*shape))


def log_cosh(z):
    return jnp.log(jnp.cosh(z))


def machine(p, x):
    """A restricted Boltzmann machine: holomorphic, one output."""
    z = x.astype(p["w"].dtype)
    return jnp.sum(log_cosh(z @ p["w"] + p["b"])) + z @ p["a"]


def deep(p, x):
    """Two complex layers, two outputs, a complex scale: holomorphic."""
    z = x.astype(p["w1"].dtype)
    h = log_cosh(z @ p["w1"] + p["b1"] * (0.5 + 1j))
    return log_cosh(h @ (p["w2"] * 1j)) @ p["o"]


def amplitude_and_phase(p, x):
    """Real parameters, a complex output."""
    h = jnp.tanh(x @ p["w"] + p["b"])
    return lax.complex(h @ p["amplitude"], jnp.sin(h @ p["phase"]))


def real_in_complex(p, x):
    """Real weights and biases in complex arithmetic: scaled by complex numbers, and beside complex weights."""
    z = lax.complex(x, x**2)
    h = log_cosh(z @ (p["w"].astype(z.dtype) * (1 + 2j)) + p["b"].astype(z.dtype) * 1j)
    return (h * p["g"]) @ p["o"] + lax.complex(jnp.abs(h @ p["o"]), x[:2])


def not_holomorphic(p, x):
    """Conjugates and absolute values of complex layers; a real output."""
    z = x.astype(p["w"].dtype)
    h = jnp.tanh(z @ p["w"])
    return jnp.abs(h @ p["v"].conj()) + (jnp.conj(h) @ p["v"]).real


def pooled(p, x):
    """Tokens that are summed behind a function: no short cut is taken through complex numbers."""
    z = x.astype(p["w"].dtype)
    return jnp.sum(jnp.abs(z @ p["w"]), 0) + jnp.sum(log_cosh(z @ p["w"]), 0).imag + jnp.sum(z @ p["v"], 0).real


def looked_up(p, x):
    return jnp.sum(log_cosh(p["E"][x] @ p["w"]), 0)


MODELS = {
    "machine": (machine, {"w": c(3, 4), "b": c(4), "a": c(3)}, rows(3), set()),
    "deep": (deep, {"w1": c(3, 4), "b1": c(4), "w2": c(4, 4), "o": c(4, 2)}, rows(3), set()),
    "phase": (amplitude_and_phase, {"w": w(3, 4), "b": w(4), "amplitude": w(4), "phase": w(4)}, rows(3), set()),
    "real in complex": (real_in_complex, {"w": w(3, 4), "b": w(4), "g": c(4), "o": c(4, 2)}, rows(3), {"['g']"}),
    "not holomorphic": (not_holomorphic, {"w": c(3, 4), "v": c(4, 2)}, rows(3), {"['v']"}),
    "pooled": (pooled, {"w": c(3, 4), "v": c(3, 4)}, rows(5, 3), set()),
    "looked up": (looked_up, {"E": c(5, 3), "w": c(3, 2)}, tokens(5, 4), set()),
}


def real_jacobian(f, params, x):
    """`(n, outputs, parameters)`: real parts of all outputs, then imaginary parts, by parts of all parameters."""
    leaves, structure = jax.tree.flatten(params)
    parts = [(leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else (leaf,) for leaf in leaves]

    def g(parts, one):
        whole = [lax.complex(*p) if len(p) == 2 else p[0] for p in parts]
        y = jnp.ravel(f(jax.tree.unflatten(structure, whole), one))
        return jnp.concatenate([y.real, y.imag]) if jnp.iscomplexobj(y) else y

    found = jax.tree.leaves(jax.vmap(lambda one: jax.jacrev(g)(parts, one))(x))
    return np.concatenate([np.asarray(j, np.float64).reshape(*j.shape[:2], -1) for j in found], -1)


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


def symmetric(kernel):
    return (kernel == kernel.conj().transpose(1, 0, 3, 2)).all()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.wide
def test_real_and_imaginary_blocks(name, centred):
    f, params, x, plain = MODELS[name]
    jacobian = real_jacobian(f, params, x)
    jacobian = jacobian - jacobian.mean(0) if centred else jacobian
    expected = np.einsum("iap,jbp->ijab", jacobian, jacobian)
    found = emp.empirical_ntk(f, params, x, centred=centred)
    assert found.dtype == w(1).dtype
    assert_close(found, expected)
    assert symmetric(found)
    trace = emp.empirical_ntk(f, params, x, outputs="trace", centred=centred)
    assert_close(trace, np.einsum("ijaa->ij", expected) / expected.shape[-1])
    plan = tangents_of(any_model(f, params), np.asarray(x)).plan
    assert {plan.names[i] for i in plan.plain} == plain


@pytest.mark.parametrize("name", ["deep", *(pytest.param(n, marks=pytest.mark.slow) for n in ("machine", "looked up"))])
def test_a_holomorphic_function(name):
    f, params, x, _ = MODELS[name]
    jacobians = jax.tree.leaves(
        jax.vmap(lambda one: jax.jacrev(lambda p: jnp.ravel(f(p, one)), holomorphic=True)(params))(x)
    )
    flat = np.concatenate([np.asarray(j).reshape(*j.shape[:2], -1) for j in jacobians], -1)
    expected = np.einsum("iap,jbp->ijab", flat, flat.conj())
    found = emp.empirical_ntk(f, params, x, holomorphic=True)
    assert jnp.iscomplexobj(found)
    assert_close(found, expected)
    assert symmetric(found)
    assert_close(
        emp.empirical_ntk(f, params, x[:1], x, holomorphic=True, outputs="trace"),
        np.einsum("ijaa->ij", expected)[:1] / expected.shape[-1],
    )
    flat = flat - flat.mean(0)
    centred = emp.empirical_ntk(f, params, x, holomorphic=True, centred=True)
    assert_close(centred, np.einsum("iap,jbp->ijab", flat, flat.conj()))
    assert symmetric(centred)
    # the blocks of real and imaginary parts say the same, twice
    k, blocks = expected.shape[-1], emp.empirical_ntk(f, params, x)
    real, imaginary, mixed = blocks[..., :k, :k], blocks[..., k:, k:], blocks[..., k:, :k]
    assert_close((real + imaginary + 1j * (mixed - mixed.transpose(1, 0, 3, 2))) / 2, expected)


def test_real_parameters_have_a_complex_kernel_too():
    f, params, x, _ = MODELS["phase"]
    blocks = emp.empirical_ntk(f, params, x)
    real, imaginary, mixed = blocks[..., 0, 0], blocks[..., 1, 1], blocks[..., 1, 0]
    j = real_jacobian(f, params, x)
    j = j[:, 0] + 1j * j[:, 1]
    assert_close(real + imaginary + 1j * (mixed - mixed.T), j @ j.conj().T)


@pytest.mark.parametrize("holomorphic", [False, True])
@pytest.mark.wide
def test_blocks_and_jit(holomorphic, monkeypatch):
    from everwide.empirical._tiles import _kernels, _programs

    f, params, x, _ = MODELS["deep"]
    whole = emp.empirical_ntk(f, params, x, holomorphic=holomorphic, centred=True)
    inside = jax.jit(lambda p, x: emp.ntk_block(f, p, x, x, holomorphic=holomorphic, centred=True))(params, x)
    assert_close(np.asarray(inside), whole)
    monkeypatch.setattr(_kernels, "at_once", lambda *_: False)
    monkeypatch.setattr(_kernels, "fit", lambda *_: _programs.Fit(_programs.Size(3, 1), 2))
    tiles = emp.empirical_ntk(f, params, x, holomorphic=holomorphic, centred=True)
    assert_close(tiles, whole)
    assert symmetric(tiles)
    parts = emp.empirical_ntk_blocks(f, params, x, holomorphic=holomorphic, centred=True)
    assert_close(sum(parts.values()), whole)


def test_two_batches_are_centred_apart():
    f, params, x, _ = MODELS["machine"]
    j = real_jacobian(f, params, x)
    a, b = j[:3] - j[:3].mean(0), j[1:] - j[1:].mean(0)
    for outputs, rule in (("full", "iap,jbp->ijab"), ("diagonal", "iap,jap->ija")):
        found = emp.empirical_ntk(f, params, x[:3], x[1:], centred=True, outputs=outputs)
        assert_close(found, np.einsum(rule, a, b))


def test_what_is_refused():
    f, params, x, _ = MODELS["phase"]
    with pytest.raises(ew.InputError, match=r"params\['amplitude'\] is float.*expected complex"):
        emp.empirical_ntk(f, params, x, holomorphic=True)
    f, params, x, _ = MODELS["not holomorphic"]
    with pytest.raises(ew.InputError, match=r"f returns float.*expected complex"):
        emp.empirical_ntk(f, params, x, holomorphic=True)
    with pytest.raises(ew.InputError, match="no complex derivative"):
        emp.empirical_ntk(lambda p, x: jnp.conj(machine(p, x)), MODELS["machine"][1], x, holomorphic=True)
    for call in (emp.jacobian_operator, emp.per_example_gradients):
        with pytest.raises(ew.InputError, match=r"params\['v'\] is complex.*empirical_ntk"):
            call(f, params, x)


DEVICES = """
    import jax, jax.numpy as jnp, numpy as np
    import everwide.empirical as emp
    from jax import lax
    from jax.sharding import PartitionSpec as P

    assert len(jax.devices()) == 2
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))
    def f(p, x):
        start = jnp.zeros(4) + p["b"]
        h = lax.scan(lambda h, row: (jnp.tanh(h @ p["u"] + row * p["v"]), None), start, x)[0]
        z = lax.complex(h @ p["w"], jax.nn.relu(h @ p["w"]))
        return jnp.log(jnp.cosh(z @ p["c"]))
    params = {"u": draw(4, 4), "v": draw(4), "b": draw(4), "w": draw(4, 3), "c": lax.complex(draw(3, 2), draw(3, 2))}
    x = draw(6, 5)
    expected = emp.empirical_ntk(f, params, x)
    mesh = jax.make_mesh((2,), ("S",), axis_types=(jax.sharding.AxisType.Auto,))
    for check in (True, False):
        rows = lambda p, some, all: emp.ntk_block(f, p, some, all)
        split = jax.shard_map(rows, mesh=mesh, in_specs=(P(), P("S"), P()), out_specs=P("S"), check_vma=check)
        found = jax.jit(split)(params, x, x)
        assert len(found.sharding.device_set) == 2
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    spread = jax.device_put(x, jax.NamedSharding(mesh, P("S")))
    copies = jax.device_put(params, jax.NamedSharding(mesh, P()))
    found = jax.jit(lambda p, x: emp.ntk_block(f, p, x, x, centred=True))(copies, spread)
    centred = emp.empirical_ntk(f, copies, spread, centred=True)
    np.testing.assert_allclose(found, centred, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(emp.empirical_ntk(f, copies, spread), expected, rtol=1e-6)
"""


@pytest.mark.wide
@pytest.mark.slow
def test_several_devices(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(DEVICES)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
