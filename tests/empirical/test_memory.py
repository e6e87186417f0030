"""Memory stays within its budget, whatever the numbers of examples, outputs and parameters are."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.empirical as emp
from empirical.models_zoo import w
from everwide.empirical._tiles import _kernels
from everwide.empirical._tiles._kernels import Block, Bytes, Fit, Size, blocks, fit, pairs

pytestmark = pytest.mark.once

PARAMS = {"w": w(40, 60), "b": w(60), "g": w(60), "v": w(60, 6)}
X = np.random.default_rng(0).standard_normal((50, 40)).astype(jnp.zeros(()).dtype)


def f(p, x):
    return (jnp.tanh(x @ p["w"] + p["b"]) * p["g"]) @ p["v"]


@pytest.fixture(scope="module")
def plenty():
    return emp.empirical_ntk(f, PARAMS, X)


@pytest.mark.parametrize("room", [30_000, 150_000])
@pytest.mark.slow
def test_a_small_budget_gives_the_same_kernel_in_small_blocks(room, plenty, monkeypatch):
    chosen = []
    remember = lambda *args: chosen.append(fit(*args)) or chosen[-1]
    monkeypatch.setattr(_kernels, "fit", remember)
    before, most, budget = _live(), [0], plenty.nbytes + room * (plenty.itemsize // 4)
    watch = lambda _: most.append(_live() - before)
    found = emp.empirical_ntk(f, PARAMS, X, memory=budget, progress=watch)
    np.testing.assert_allclose(found, plenty, rtol=1e-4, atol=1e-4 * plenty.max())
    assert chosen[0].size.examples < 50
    assert 0 < max(most) <= budget - plenty.nbytes


def _live() -> int:
    return sum(array.nbytes for array in jax.live_arrays())


def test_budgets_that_cannot_be_kept():
    with pytest.raises(ew.MemoryBudgetError, match=r"1 kernel of shape \(50, 6, 50, 6\).* 1.0 kB are .*ntk_operator"):
        emp.empirical_ntk(f, PARAMS, X, memory=1000)
    result = (50 * 6) ** 2 * X.itemsize
    with pytest.raises(ew.MemoryBudgetError, match=r"single examples and single outputs.* 1.0 kB are .*larger memory="):
        emp.empirical_ntk(f, PARAMS, X, memory=result + 1000)


def test_blocks_shrink_until_two_fit():
    cost = lambda size: Bytes(kept=100 * size.examples * size.outputs, made=1000 * size.examples, met=10)
    assert fit(Size(16, 4), 10**6, cost) == Fit(Size(16, 4), (10**6 - 16000) // 6400)
    assert fit(Size(16, 4), 8000, cost) == Fit(Size(4, 4), 2)
    assert fit(Size(16, 4), 1400, cost) == Fit(Size(1, 2), 2)
    with pytest.raises(ew.MemoryBudgetError, match=r"needs 1\.2 kB, 1\.1 kB are available"):
        fit(Size(16, 4), 1100, cost)


@pytest.mark.parametrize("held", [2, 3, 5, 9])
@pytest.mark.parametrize("symmetric", [True, False])
def test_every_pair_of_blocks_once_with_few_in_memory(held, symmetric):
    rows = [Block(part, slice(0, 1)) for part in blocks(11, 2)]
    columns = None if symmetric else [Block(part, slice(0, 1)) for part in blocks(7, 2)]
    alive, most = set(), [0]

    class Made:
        def __init__(self, block):
            self.block = block
            alive.add(id(self))
            most.append(len(alive))

        def __del__(self):
            alive.discard(id(self))

    seen, make = [], lambda block, _: Made(block)
    for row, column, first, second in pairs(rows, columns, held, make):
        assert (first.block, second.block) == (row, column)
        seen.append((row.examples.start, column.examples.start))
        del first, second
    others = rows if columns is None else columns
    wanted = [(a.examples.start, b.examples.start) for a in rows for b in others]
    assert sorted(seen) == sorted(pair for pair in wanted if not symmetric or pair[0] <= pair[1])
    assert max(most) <= held + 1  # the one that is being made


@pytest.mark.slow
def test_resident_memory_of_a_process():
    # The factors of all examples are 430 MB, and the Jacobians 22 GB. Compilers need some megabytes of their own.
    script = """
import resource, sys, jax, jax.numpy as jnp, numpy as np, everwide.empirical as emp
f = lambda p, x: jnp.tanh(jnp.tanh(x @ p["u"]) * p["g"]) @ p["v"]
p = {"u": jnp.ones((100, 12000)) / 10, "g": jnp.ones(12000), "v": jnp.ones((12000, 3)) / 100}
x = np.random.default_rng(0).standard_normal((1500, 100)).astype(np.float32)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
emp.empirical_ntk(f, p, x[:2], outputs="trace")
before = peak()
emp.empirical_ntk(f, p, x, outputs="trace", memory=109_000_000)
print(peak() - before)
"""
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert int(run.stdout) < 109_000_000 + 50_000_000
