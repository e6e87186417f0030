"""The loop over tiles that everybody uses: written once, mirrored, told."""

import numpy as np
import pytest

import everwide as ew
from everwide._engine import MemoryBudgetError, Size, Tile, budget, collect, finished, require, tiles, write
from everwide.signal import Pairs

pytestmark = pytest.mark.once


def symmetric(n: int, *sites: int, shared: bool) -> np.ndarray:
    """A matrix that does not change when both examples are swapped, with their sites unless they share them."""
    a = np.random.default_rng(0).standard_normal((n, n, *sites) if shared else (n, n, *sites, *sites))
    half = tuple(range(2, 2 + len(sites)))
    order = (1, 0, *half) if shared else (1, 0, *(i + len(sites) for i in half), *half)
    return a + a.transpose(order)


@pytest.mark.parametrize(("sites", "shared"), [((), True), ((3,), True), ((3,), False), ((2, 3), False)])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_half_of_a_symmetric_matrix_is_enough(sites, shared, size):
    pairs = Pairs.SAME_SITE if shared else Pairs.ALL_SITES
    whole = symmetric(7, *sites, shared=shared)
    out = np.full(whole.shape, np.nan)
    for tile in tiles(7, 7, Size(size, size), symmetric=True):
        values = whole[tile.place()].copy()
        if tile.rows == tile.cols:  # the upper half is not believed
            values[np.triu_indices(len(values), 1)] = np.inf
        write(out, tile, values, pairs)
    np.testing.assert_array_equal(out, whole)


def test_some_sites_of_both_examples_swap_with_them():
    whole = symmetric(4, 5, shared=False)
    out = np.zeros(whole.shape)
    blocks = [(e, o) for e in (slice(0, 3), slice(3, 4)) for o in (slice(0, 2), slice(2, 5))]
    for i, (rows, first) in enumerate(blocks):
        for cols, second in blocks[: i + 1]:
            tile = Tile(rows, cols, (first, second))
            write(out, tile, whole[tile.place()] / 2, Pairs.ALL_SITES, balanced=True, add=True)
            write(out, tile, whole[tile.place()] / 2, Pairs.ALL_SITES, balanced=True, add=True)
    np.testing.assert_allclose(out, whole, rtol=1e-15)


def test_tiles_are_started_before_others_are_written_and_lose_their_padding():
    events = []

    def started():
        for i in range(4):
            events.append(f"start {i}")
            yield Tile(slice(2 * i, min(2 * i + 2, 7)), slice(0, 3)), {"k": np.full((3, 2, 5), float(i))}

    out = {"k": np.zeros((7, 3))}
    told = []
    done = ((events.append(f"write {int(v['k'][0, 0])}"), (tile, v))[1] for tile, v in arranged(started()))
    collect(done, out, None, total=4, progress=told.append)
    assert events[:3] == ["start 0", "start 1", "write 0"]
    assert [(p.done, p.total) for p in told] == [(i, 4) for i in range(1, 5)]
    np.testing.assert_array_equal(out["k"], np.repeat([0, 0, 1, 1, 2, 2, 3], 3).reshape(7, 3))


def arranged(started):
    return finished(started, arrange=lambda a: a[0].repeat(2, 0)[:, :4])


def test_half_of_what_is_free_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.setattr("everwide._engine._inputs.available_memory", lambda: 1000)
    assert (budget(None), budget(7), budget(5000)) == (500, 7, 5000)
    require(500, None, "A", "B.")
    with pytest.raises(MemoryBudgetError, match=r"A needs 501 B, 500 B are available. B\."):
        require(501, None, "A", "B.")
    for call in (
        lambda: ew.gram(ew.Dense(), np.ones((20, 2))),
        lambda: ew.empirical_ntk(lambda p, x: p * x, np.ones(3), np.ones((20, 3))),
        lambda: ew.empirical.ntk_operator(lambda p, x: p * x, np.ones(300), np.ones((20, 300))),
        lambda: ew.empirical.per_example_gradients(lambda p, x: p * x, np.ones(300), np.ones((20, 300))),
    ):
        with pytest.raises(ew.MemoryBudgetError, match="500 B are available"):
            call()
