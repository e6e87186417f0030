"""The compiled path: the numbers of its definition, `Infinite`, and of matrices over all pairs of sites."""

import pickle
import subprocess
import sys
import tracemalloc
from importlib import util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide._kernels._compiled import Compiled, compiled
from everwide._kernels._compiled_plan import pairs_of_sites
from everwide._kernels._trunk import match
from everwide.testing._draws import quick_jit
from kernels import sites_reference

pytestmark = pytest.mark.as_users

pytest.importorskip("numba", reason="the compiled path needs numba: pip install everwide[cpu]")

WIDE = jax.config.jax_enable_x64
DTYPE = np.float64 if WIDE else np.float32
CLOSE = {"float32": 5e-6, "float64": 1e-12}
GAP, FLAT, DENSE, RELU = ew.GlobalAvgPool(), ew.Flatten(), ew.Dense(1), ew.Relu()


def conv(*window, b_std=0.3, padding="SAME", strides=1, dilation=1, frozen=False):
    return ew.Conv(
        window, w_std=1.5, b_std=b_std, padding=padding, strides=strides, dilation=dilation, frozen=frozen, width=4
    )


def around(*window, strides=1):
    return conv(*window, padding="CIRCULAR", strides=strides)


# shape of an input, layers
NETWORKS = {
    "3x3": [(5, 6, 3), conv(3, 3), RELU, conv(3, 3), RELU, GAP, DENSE],
    "flatten": [(5, 4, 3), conv(3, 3), RELU, conv(3, 3), RELU, FLAT, DENSE],
    "valid": [(6, 7, 2), conv(3, 2, padding="VALID"), RELU, conv(2, 3, padding="VALID"), RELU, GAP],
    "even windows": [(5, 7, 1), conv(4, 2), RELU, conv(2, 5), RELU, GAP, DENSE],
    "strides": [(7, 8, 2), conv(3, 3, strides=2), RELU, conv(2, 3, strides=(1, 2)), RELU, GAP, DENSE],
    "strides, flatten": [(7, 8, 2), conv(3, 3, strides=(2, 3)), RELU, conv(3, 3), RELU, FLAT, DENSE],
    "unread sites": [(8, 7, 2), conv(1, 2, strides=3), RELU, conv(2, 2), RELU, GAP],
    "dilation": [(6, 6, 2), conv(3, 2, dilation=2), RELU, conv(2, 3, dilation=(1, 3)), RELU, GAP, DENSE],
    "explicit padding": [(4, 5, 2), conv(3, 3, padding=((2, 0), (2, 1))), RELU, conv(2, 2), RELU, GAP, DENSE],
    "cropping": [(6, 6, 2), conv(2, 2, padding=((-1, 1), (0, -2))), RELU, conv(2, 2), RELU, GAP, DENSE],
    "padding alone": [(3, 4, 2), conv(1, 1, b_std=None, padding=((3, 3), (2, 2)), strides=2), RELU, GAP, DENSE],
    "circular": [(4, 5, 2), around(3, 2), RELU, around(3, 3), RELU, GAP],
    "circular, wider than the input": [(2, 3, 2), around(5, 2), RELU, around(3, 7), RELU, GAP],
    "circular, strides": [(4, 8, 2), around(3, 3, strides=2), RELU, around(5, 3), ew.activations.Abs(), GAP],
    "circular, pools": [(4, 6, 2), around(3, 3), RELU, ew.AvgPool((2, 2)), around(3, 3), RELU, GAP],
    "circle, then edges": [
        (4, 5, 2),
        *(around(3, 3), RELU, ew.AvgPool((2, 3), padding="CIRCULAR", strides=1), conv(2, 2), RELU, FLAT),
    ],
    "sequence": [(11, 2), conv(3), RELU, conv(4, strides=2), RELU, GAP, DENSE],
    "sequence, circular": [(6, 2), around(3), RELU, FLAT, DENSE],
    "sum": [(3, 4, 3), conv(3, 3), RELU, ew.layers.GlobalSumPool(), DENSE],
    "pool, flatten": [(6, 5, 2), conv(3, 3), RELU, ew.AvgPool((2, 2)), FLAT, DENSE],
    "pool, pool": [(8, 5, 2), conv(2, 2), RELU, ew.AvgPool((2, 2)), ew.layers.SumPool((2, 1)), GAP, DENSE],
    "overlapping pools": [
        (5, 6, 2),
        *(conv(3, 3), RELU, ew.layers.SumPool((3, 2), strides=(1, 2), padding="SAME"), conv(2, 2), RELU, GAP, DENSE),
    ],
    "edges of pools": [
        (8, 2),
        *(conv(3), RELU, ew.AvgPool((3,), strides=2, padding="SAME", normalize_edges=True), conv(2), RELU, GAP),
    ],
    "four segments": [
        (9, 7, 2),
        *(ew.AvgPool((2, 2), strides=1), conv(2, 2), RELU, ew.AvgPool((2, 2)), conv(2, 2), RELU),
        *(ew.layers.SumPool((2, 1)), conv(2, 1), RELU, FLAT, DENSE),
    ],
    "pools of inputs": [
        (9, 7, 2),
        *(ew.AvgPool((3, 2), strides=2, padding="SAME", normalize_edges=True), ew.layers.SumPool((2, 1), strides=1)),
        *(conv(2, 2), RELU, ew.AvgPool((2, 2)), GAP, DENSE),
    ],
    "pool of sequences": [(9, 2), ew.AvgPool((3,)), conv(2), RELU, FLAT, DENSE],
    "pool alone": [(6, 4, 2), ew.AvgPool((3, 2)), GAP],
    "mirror": [(4, 5, 2), ew.layers.Mirror(1), conv(1, 3, 3), RELU, conv(1, 3, 2), RELU, GAP, DENSE],
    "mirror, alike": [
        (6, 4, 2),
        *(ew.layers.Mirror(0, -1), ew.AvgPool((1, 2, 1)), conv(1, 3, 3), RELU, ew.AvgPool((1, 1, 2)), GAP, DENSE),
    ],
    "mirror, flatten": [(4, 6, 2), ew.layers.Mirror(1), conv(1, 3, 3), RELU, ew.AvgPool((2, 2, 3)), FLAT, DENSE],
    "mirror, sums": [(5, 2), ew.layers.Mirror(0), conv(1, 2), RELU, ew.layers.SumPool((2, 1)), FLAT],
    "mirror, strides": [(4, 5, 2), ew.layers.Mirror(1), conv(1, 2, 2, strides=(1, 2, 2)), RELU, GAP],
    "pool before the activation": [(4, 6, 2), conv(3, 3), ew.AvgPool((2, 2)), RELU, GAP, DENSE],
    "no activation": [(4, 5, 2), conv(3, 3), conv(2, 2), GAP, DENSE],
    "no layers": [(4, 5, 2), ew.Identity(), GAP],
    "slopes": [(4, 5, 2), conv(3, 3), ew.LeakyRelu(0.2), conv(3, 3), ew.activations.TwoSlope(-0.4, 1.3), GAP, DENSE],
    "arrays": [(7, 2), ew.Conv((3,), w_std=jnp.asarray(1.5), width=2), ew.LeakyRelu(jnp.asarray(0.25)), GAP, DENSE],
    "dense at every site": [(4, 5, 2), conv(3, 3), RELU, ew.Dense(3, w_std=1.2, b_std=0.1), RELU, GAP, DENSE],
    "nested": [(4, 4, 2), ew.Serial(conv(3, 3), RELU), ew.Repeat(ew.Serial(conv(3, 3), RELU), 3), GAP, DENSE],
    "frozen": [(4, 5, 2), conv(3, 3, frozen=True), RELU, conv(3, 3), RELU, conv(2, 2, frozen=True), GAP],
    "speeds": [
        (4, 5, 2),
        ew.Conv((3, 3), b_std=0.3, speed=0.25, width=4),
        RELU,
        ew.Conv((2, 2), speed=3.0, width=4),
        GAP,
        DENSE,
    ],
    "no bias": [(4, 5, 2), conv(3, 3, b_std=None), RELU, conv(3, 3, b_std=None), RELU, GAP, DENSE],
    "curved tail": [(4, 5, 2), conv(3, 3), RELU, GAP, ew.Dense(4), RELU, ew.Dense(4), ew.activations.Abs(), DENSE],
    "curved tail, flatten": [(4, 5, 2), conv(3, 3), RELU, FLAT, ew.Serial(ew.Dense(4), RELU), DENSE],
    "curved tail, pools": [
        (9, 2),
        *(conv(3), RELU, ew.AvgPool((2,)), conv(3), RELU, GAP, ew.Repeat(ew.Serial(ew.Dense(4), RELU), 4), DENSE),
    ],
    "activation after pooling": [(4, 5, 2), conv(3, 3), GAP, RELU, DENSE],
}


def kernel_of(name, *, parametrization="ntk"):
    shape, *layers = NETWORKS[name]
    return ew.Infinite(ew.Serial(*layers), shape, parametrization=parametrization)


def batch(kernel, n, *, seed=0, dtype=DTYPE):
    return ew.Inputs(jnp.asarray(np.random.default_rng(seed).standard_normal((n, *kernel.input_shape)), dtype))


@quick_jit  # it is what the compiled path is compared with; other modules look at its own numbers
def definition(kernel, x1, x2):
    return kernel.block(x1, x2), kernel.diagonal(x1)


def assert_close(found, expected):
    """`expected`: both kernels."""
    for a, b in zip((np.asarray(found.nngp), np.asarray(found.ntk)), expected, strict=True):
        assert a.dtype in (np.float32, np.float64)
        np.testing.assert_allclose(a, b, rtol=CLOSE[a.dtype.name], atol=CLOSE[a.dtype.name] * np.abs(b).max())


def assert_same(found, expected):
    assert found.nngp.dtype == found.ntk.dtype == expected.ntk.dtype
    assert_close(found, (expected.nngp, expected.ntk))


def reference(kernel, x1, x2=None):
    """`(2, n1, n2)`, or `(2, n)` of each example with itself."""
    standard = kernel.parametrization == "standard"
    pair = lambda a, b: sites_reference.kernels(kernel.net, a, b, standard=standard)
    if x2 is None:
        return np.moveaxis(np.array([pair(a, a) for a in np.asarray(x1.x)]), -1, 0)
    return np.moveaxis(np.array([[pair(a, b) for b in np.asarray(x2.x)] for a in np.asarray(x1.x)]), -1, 0)


@pytest.mark.once
@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_are_those_of_matrices_over_all_pairs_of_sites(name):
    kernel = kernel_of(name)
    fast = compiled(kernel)
    assert isinstance(fast, Compiled)
    x1, x2 = batch(kernel, 3), batch(kernel, 2, seed=1)
    assert_close(fast.block(x1, x2), reference(kernel, x1, x2))
    assert_close(fast.diagonal(x1), reference(kernel, x1))


_TWINS = "dense at every site", "no bias", "curved tail, flatten"


@pytest.mark.parametrize(
    "name", ["3x3", "frozen", "speeds", *(pytest.param(n, marks=pytest.mark.slow) for n in _TWINS)]
)
def test_the_standard_parametrization(name):
    kernel = kernel_of(name, parametrization="standard")
    x1, x2 = batch(kernel, 2), batch(kernel, 3, seed=1)
    assert_close(compiled(kernel).block(x1, x2), reference(kernel, x1, x2))
    assert_close(compiled(kernel).diagonal(x1), reference(kernel, x1))


@pytest.mark.parametrize(("name", "crosses"), [("mirror", 4), ("mirror, alike", 4), ("mirror, flatten", 2)])
def test_one_copy_of_the_first_is_enough_where_windows_mirror(name, crosses):
    assert match(kernel_of(name)).crosses == crosses  # of 2, 4 and 2 copies


def test_mirror_images_are_means_over_pairs_of_them():
    plain = ew.Infinite(ew.Serial(conv(2, 3), RELU, GAP, DENSE), (4, 5, 2))
    mirror = ew.Infinite(ew.Serial(ew.layers.Mirror(0), conv(1, 2, 3), RELU, GAP, DENSE), (4, 5, 2))
    x1, x2 = batch(plain, 2), batch(plain, 3, seed=1)
    flip = lambda x: ew.Inputs(x.x[:, ::-1])
    pairs = [definition(plain, a, b)[0] for a in (x1, flip(x1)) for b in (x2, flip(x2))]
    expected = [np.mean([getattr(pair, field) for pair in pairs], 0) for field in ("nngp", "ntk")]
    assert_close(compiled(mirror).block(x1, x2), expected)
    assert_close(definition(mirror, x1, x2)[0], expected)


def test_pools_of_inputs_cost_no_pairs_of_sites():
    small = ew.Infinite(ew.Serial(conv(3, 3), RELU, GAP), (4, 4, 2))
    large = ew.Infinite(ew.Serial(ew.AvgPool((8, 8)), conv(3, 3), RELU, GAP), (32, 32, 2))
    assert pairs_of_sites(match(small).trunk) == pairs_of_sites(match(large).trunk)


@pytest.mark.parametrize(
    ("name", "parametrization"),
    [
        ("strides", "ntk"),
        ("pools of inputs", "ntk"),
        ("mirror, flatten", "ntk"),
        ("mirror, alike", "standard"),
        ("circular, pools", "standard"),
        ("curved tail, pools", "ntk"),
        ("flatten", "standard"),
    ],
)
def test_numbers_are_those_of_the_definition(name, parametrization):
    kernel = kernel_of(name, parametrization=parametrization)
    x1, x2 = batch(kernel, 2), batch(kernel, 3, seed=1)
    block, diagonal = definition(kernel, x1, x2)
    assert_same(compiled(kernel).block(x1, x2), block)
    assert_same(compiled(kernel).diagonal(x1), diagonal)


@pytest.mark.skipif(not WIDE, reason="float32 is the only precision without jax_enable_x64")
@pytest.mark.parametrize("name", ["3x3", "flatten", "curved tail, pools"])
def test_float32_data_stay_float32_beside_float64(name):
    kernel = kernel_of(name)
    x1, x2 = batch(kernel, 3, dtype=np.float32), batch(kernel, 2, seed=1, dtype=np.float32)
    found = compiled(kernel).block(x1, x2)
    assert found.nngp.dtype == found.ntk.dtype == np.float32
    assert_close(found, reference(kernel, x1, x2))
    assert_close(compiled(kernel).diagonal(x1), reference(kernel, x1))


def test_more_examples_than_lanes_on_either_side():
    kernel = kernel_of("strides")
    fast, x1, x2 = compiled(kernel), batch(kernel, 70), batch(kernel, 3, seed=1)
    expected = reference(kernel, x1, x2)
    assert_close(fast.block(x1, x2), expected)
    assert_close(fast.block(x2, x1), expected.swapaxes(1, 2))


@pytest.mark.parametrize("name", ["3x3", "curved tail, flatten"])
def test_a_batch_with_itself(name):
    kernel = kernel_of(name)
    fast, x = compiled(kernel), batch(kernel, 70)
    half, whole = fast.block(x, x), fast.block(x, ew.Inputs(jnp.array(x.x)))
    for field in ("nngp", "ntk"):
        a, b = np.asarray(getattr(half, field)), np.asarray(getattr(whole, field))
        np.testing.assert_array_equal(a, a.T)
        off = ~np.eye(70, dtype=bool)  # on the diagonal both cancel, each in its own way
        np.testing.assert_allclose(a[off], b[off], rtol=CLOSE[a.dtype.name])


def test_the_number_of_threads_changes_nothing(monkeypatch):
    from everwide._kernels import _compiled

    kernel = kernel_of("pool, flatten")
    fast, x1, x2 = compiled(kernel), batch(kernel, 40), batch(kernel, 50, seed=1)
    found = []
    for many in (1, 5):
        monkeypatch.setattr(_compiled, "threads", lambda many=many: many)
        found.append(fast.block(x1, x2))
    np.testing.assert_array_equal(found[0].nngp, found[1].nngp)
    np.testing.assert_array_equal(found[0].ntk, found[1].ntk)


@pytest.mark.parametrize("name", ["no bias", "padding alone"])
def test_images_with_nothing_in_them(name):
    kernel = kernel_of(name)
    x1, x2 = batch(kernel, 3), batch(kernel, 2, seed=1)
    x1 = ew.Inputs(x1.x.at[0].set(0).at[1, :3].set(0))
    assert_close(compiled(kernel).block(x1, x2), reference(kernel, x1, x2))
    assert_close(compiled(kernel).diagonal(x1), reference(kernel, x1))


def refused():
    body = (conv(3, 3), RELU)
    shape = (4, 5, 2)
    yield "no sites", ew.Serial(ew.Dense(), RELU, DENSE), (4,)
    yield "sites are left", ew.Serial(*body), shape
    yield "three site axes", ew.Serial(conv(3, 3, 3), RELU, GAP), (2, 3, 4, 1)
    yield "another activation", ew.Serial(conv(3, 3), ew.Erf(), GAP), shape
    yield "branches", ew.Serial(conv(3, 3), ew.Residual(RELU, conv(3, 3)), GAP), shape
    yield "normalization", ew.Serial(*body, ew.LayerNorm(), GAP), shape
    yield "transposed", ew.Serial(ew.layers.ConvTranspose((3, 3)), RELU, GAP), shape
    yield "a circle that is cut", ew.Serial(around(3, 3), RELU, conv(3, 3), RELU, GAP), shape
    yield "a circle that strides do not close", ew.Serial(around(3, 3, strides=2), RELU, GAP), shape
    yield "a tail that reads means", ew.Serial(*body, GAP, ew.Residual(ew.Dense(4))), shape
    yield "mirror images that meet", ew.Serial(ew.layers.Mirror(0), conv(2, 3, 3), RELU, GAP), shape
    yield (
        "mirror images that met",
        ew.Serial(ew.layers.Mirror(0), conv(1, 3, 3), RELU, ew.AvgPool((2, 1, 1)), conv(1, 1, 1), RELU, GAP),
        shape,
    )
    yield "mirror images apart", ew.Serial(ew.layers.Mirror(0), conv(1, 3, 3), RELU, FLAT), shape
    yield "mirror images of features", ew.Serial(conv(3, 3), RELU, ew.layers.Mirror(0), GAP), shape
    yield (
        "mirror images, curved tail",
        ew.Serial(ew.layers.Mirror(0), conv(1, 3, 3), RELU, GAP, ew.Dense(4), RELU),
        shape,
    )
    yield "many channels", ew.Serial(*body, GAP), (4, 5, 1000)


@pytest.mark.parametrize(("net", "shape"), [pytest.param(*case, id=name) for name, *case in refused()])
def test_other_networks_stay_with_their_definition(net, shape):
    kernel = ew.Infinite(net, shape)
    assert compiled(kernel) is kernel


def test_numbers_under_a_transformation_are_not_compiled():
    seen = []

    def ntk(w_std, slope):
        net = ew.Serial(ew.Conv((3,), w_std=w_std), ew.LeakyRelu(slope), GAP, DENSE)
        kernel = compiled(ew.Infinite(net, (4, 1)))
        seen.append(type(kernel))
        x = ew.Inputs(jnp.ones((1, 4, 1)))
        return kernel.block(x, x).ntk[0, 0]

    assert min(jax.jit(jax.grad(ntk, argnums=(0, 1)))(1.0, 0.1)) > 0
    ntk(1.0, 0.1)
    assert seen == [ew.Infinite, Compiled]


def test_masked_inputs_go_to_the_definition():
    kernel = kernel_of("sequence, circular")
    x = batch(kernel, 2)
    masked = ew.Inputs(x.x, mask=jnp.ones(x.x.shape[:-1], bool).at[0, 4:].set(False))
    block, diagonal = definition(kernel, masked, x)
    assert_same(compiled(kernel).block(masked, x), block)
    assert_same(compiled(kernel).diagonal(masked), diagonal)
    assert np.abs(diagonal.ntk - compiled(kernel).diagonal(x).ntk).max() > 0.01  # the mask is not lost


def test_without_numba_the_definition_serves(monkeypatch):
    kernel = kernel_of("3x3")
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "numba" else find(name))
    assert compiled(kernel) is kernel


@pytest.mark.once
def test_numba_is_imported_only_to_compute():
    code = """
import sys, everwide as ew
from everwide._kernels._compiled import Compiled, compiled
kernel = compiled(ew.Infinite(ew.Serial(ew.Conv((3,)), ew.Relu(), ew.Flatten()), (5, 1)))
assert isinstance(kernel, Compiled)
assert "numba" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_data():
    kernel = kernel_of("sequence")
    fast, x = compiled(kernel), batch(kernel, 3)
    again = pickle.loads(pickle.dumps(fast))
    np.testing.assert_array_equal(again.block(x, x).ntk, fast.block(x, x).ntk)
    assert fast.site_shape() == kernel.site_shape() == ()


@pytest.mark.parametrize("name", ["3x3", "flatten", "overlapping pools"])
@pytest.mark.parametrize(("n1", "n2"), [(64, 64), (3, 90)])
def test_bytes_are_counted_before_they_are_spent(name, n1, n2):
    kernel = kernel_of(name)
    fast, x1, x2 = compiled(kernel), batch(kernel, n1), batch(kernel, n2, seed=1)
    peak = min(_peak(fast, x1, x2) for _ in range(4))  # the first runs compile, and fill caches of numba
    claimed = fast.tile_bytes(n1, n2, np.dtype(DTYPE).itemsize)
    assert 0.2 * claimed < peak < claimed + 100_000  # of objects that are not arrays


def _peak(fast, x1, x2) -> int:
    tracemalloc.start()
    try:
        fast.block(x1, x2)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_tile_shrinks_as_pairs_grow_dear():
    small, large = (ew.Infinite(ew.Serial(conv(3, 3), RELU, GAP), (size, size, 3)) for size in (4, 64))
    flat = ew.Infinite(ew.Serial(conv(3, 3), RELU, FLAT), (64, 64, 3))
    sizes = [Compiled(kernel, match(kernel)).examples_per_tile(4) for kernel in (small, large, flat)]
    assert sizes == [512, 32, 512]


def test_strides_leave_out_planes_that_nobody_reads():
    found = {}
    for strides in (1, 2):
        kernel = ew.Infinite(ew.Serial(conv(3), RELU, conv(3, strides=strides), RELU, GAP), (8, 1))
        matched = match(kernel)
        assert matched is not None
        found[strides] = pairs_of_sites(matched.trunk)
    assert found[1] == 2 * 8**2
    assert found[2] == (8 + 2 * (6 + 4 + 2)) + 4**2  # offsets 0, 2, 4, 6 of both signs, then all pairs of 4 sites
