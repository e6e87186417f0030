"""Attention that PyTorch modules write out: what is read of it, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide import ArchitectureError
from everwide._walk import walk
from everwide.kernel import Example
from everwide.translation._heads import Heads, Relative

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


from translation.draws import require_agreement  # noqa: E402
from translation.test_torch_modules import torch_kernels  # noqa: E402
from translation.test_torch_refusals import Module  # noqa: E402
from translation.torch_attention_modules import HEADS, SAMPLED_CASES, Gpt, Masked  # noqa: E402 - where there is torch
from translation.torch_attention_modules import Relative as Distances  # noqa: E402

pytestmark = pytest.mark.wide


def heads_of(module, shape):
    """The layers of attention that were read, and the whole translation."""
    limit = ew.from_module(module.eval(), shape)
    return [visit.layer for visit in walk(limit.net) if isinstance(visit.layer, Heads)]


@pytest.mark.parametrize("name", SAMPLED_CASES)
def test_torch_attention_that_is_written_out_is_read(name):
    make, shape, _, layers = SAMPLED_CASES[name]
    limit = ew.from_module(make(8).eval(), shape)
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}
    assert "sampled" in {str(row.outcome) for row in limit.rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED_CASES)
def test_torch_attention_that_is_written_out(name):
    make, shape, draws, _ = SAMPLED_CASES[name]
    require_agreement(lambda width: make(width).eval(), shape, torch_kernels(make, draws), draws=32)


def test_torch_both_ways_to_write_attention_are_one():
    one, two = (heads_of(Gpt(16, fused=fused), (3, 24))[0] for fused in (True, False))
    assert one == two == Heads(HEADS, 16, 16, 0.5, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_torch_heads_compute_what_attention_computes(causal):
    """With a table that is added to the scores, for two heads and values of another width."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(5, 2, n)).astype(np.float32) for n in (3, 3, 4))
    table, where = rng.normal(size=7).astype(np.float32), rng.integers(0, 7, (2, 5, 5)).astype(np.int32)
    layer = Heads(2, 6, 8, 0.7, causal, Relative(where.tobytes(), ew.Dense(7)))
    x = np.concatenate([a.reshape(5, -1) for a in (q, k, v)], -1)
    params = layer.init(jax.random.key(0), x.shape, parametrization="standard")
    params = type(params)(jnp.asarray(table[None]), None, params.fans)
    ours = layer.forward(params, Example(jnp.asarray(x))).x
    bias = torch.as_tensor(table[where])
    bias = bias.masked_fill(torch.triu(torch.ones(5, 5, dtype=torch.bool), 1), -torch.inf) if causal else bias
    heads = (torch.as_tensor(a).transpose(0, 1) for a in (q, k, v))
    theirs = F.scaled_dot_product_attention(*heads, attn_mask=bias, scale=0.7).transpose(0, 1).reshape(5, -1)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_torch_entries_of_tables_are_read(own):
    """Numbers that a module takes from its table are those that the layer takes, for every head and pair of sites."""
    module = Distances(8, own=own)
    (layer,) = heads_of(module, (3, 24))
    table = (module.table if own else module.table.weight).detach().numpy()
    where = np.frombuffer(layer.relative.entries, np.int32).reshape(HEADS, 3, 3)
    np.testing.assert_array_equal(table.reshape(-1)[where], module.bias(3)[0].detach().numpy())
    assert layer.factor == 1
    np.testing.assert_allclose(layer.relative.table.affine.w_std, 2 if own else 1, rtol=1e-5)


def test_torch_causal_masks_are_read():
    limit = ew.from_module(Masked(8).eval(), (3, 24))
    causal = [visit.layer.causal for visit in walk(limit.net) if isinstance(visit.layer, ew.SelfAttention)]
    assert causal == [True, True]


def single(change, **more):
    """One head, whose scores are changed."""

    def run(m, x):
        q, k, v = m.q(x), m.k(x), m.v(x)
        return change(m, q @ k.transpose(1, 2) / 8**0.5) @ v

    return Module(run, **{name: nn.Linear(6, 8) for name in "qkv"}, **more)


def test_torch_one_head_is_read():
    assert heads_of(single(lambda m, s: s.softmax(-1)), (5, 6)) == [Heads(1, 8, 8, 1 / 8**0.5)]


def summed(scores, values, heads):
    """Attention by `torch.einsum`; the equations of the scores, and of what is summed."""

    def run(m, x):
        q, k, v = (one(x).view(x.size(0), x.size(1), heads, -1) if heads else one(x) for one in (m.q, m.k, m.v))
        weights = (torch.einsum(scores, q, k) / 2).softmax(-1)
        return torch.einsum(values, weights, v).reshape(x.size(0), x.size(1), 8)

    return Module(run, **{name: nn.Linear(6, 8) for name in "qkv"})


@pytest.mark.parametrize("scores", ["bihd, bjhd -> bhij", "bjhd,bihd->bhij"])
def test_torch_einsum_of_heads_is_read(scores):
    assert heads_of(summed(scores, "bhij,bjhd->bihd", 2), (5, 6)) == [Heads(2, 8, 8, 0.5)]


def test_torch_einsum_of_one_head_is_read():
    assert heads_of(summed("bid,bjd->bij", "bij,bjd->bid", 0), (5, 6)) == [Heads(1, 8, 8, 0.5)]


@pytest.mark.parametrize(
    ("scores", "values"),
    [
        ("bid,bjd->bij", "bij,bid->bjd"),
        ("bid,bie->bde", "bij,bjd->bid"),
        ("...id,...jd->...ij", "bij,bjd->bid"),
    ],
)
def test_torch_other_equations_are_refused(scores, values):
    with pytest.raises(ArchitectureError, match=r"the equation .* is not one of attention|a product of two signals is"):
        ew.from_module(summed(scores, values, 0), (8, 6))


REFUSED = {
    "no softmax": (lambda m, s: s, "where a softmax made them"),
    "a softmax over queries": (lambda m, s: s.softmax(1), "softmax of the scores of attention is not read"),
    "another mask": (
        lambda m, s: s.masked_fill(torch.eye(5, dtype=torch.bool), -1e9).softmax(-1),
        "of masks, the causal one is read",
    ),
    "what a mask is filled with": (
        lambda m, s: s.masked_fill(torch.tril(torch.ones(5, 5)) == 0, 0.0).softmax(-1),
        "masked_fill of the scores",
    ),
    "numbers that are not learned": (lambda m, s: (s + torch.arange(5.0)).softmax(-1), "a mask of the shape"),
    "a table behind a function": (
        lambda m, s: (s + torch.tanh(m.t)).softmax(-1),
        "adds numbers to the scores that are no parameters",
    ),
    "another function of scores": (lambda m, s: torch.relu(s), "relu of the scores of attention"),
    "dropout": (lambda m, s: F.dropout(s.softmax(-1), 0.5), "dropout of attention"),
    "temperatures that are learned": (lambda m, s: (s * m.t[0, 0]).softmax(-1), "mul of the scores"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_torch_attention_that_is_not_known(name):
    change, message = REFUSED[name]
    with pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(single(change, t=nn.Parameter(torch.randn(5, 5))), (5, 6))


def test_torch_windows_of_attention_are_refused_where_they_are_cut():
    def windows(m, x):
        x = torch.roll(m.q(x), (-1, -1), (1, 2))
        n, height, width, channels = x.shape
        return x.view(n, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, channels)

    message = r"(?s)roll.*windows.*view .*cuts an axis into pieces.*\(test_torch_attention.py, line \d+\)"
    with pytest.raises(ArchitectureError, match=message):
        ew.from_module(Module(windows, q=nn.Linear(6, 8)), (4, 4, 6))


class TwiceMasked(Gpt):
    """Hides one more site, after the causal mask or before it; masks come from many small steps."""

    def __init__(self, width, *, last, hides=True):
        super().__init__(width, fused=False)
        self.last, self.hides = last, hides

    def attend(self, x):
        q, k, v = self.read(x).split(self.width, dim=2)
        places = torch.arange(x.shape[1])
        for _ in range(40):
            places = places + 0
        causal = places[:, None] < places[None, :]
        other = (places[:, None] >= 0) & (places[None, :] == 1)
        masks = (causal, other) if self.last else (other, causal)
        scores = q @ k.transpose(-2, -1)
        for mask in masks if self.hides else (causal, causal):
            scores = scores.masked_fill(mask, float("-inf"))
        return self.project(F.softmax(scores, dim=-1) @ v)


@pytest.mark.parametrize("last", [False, True])
def test_torch_every_mask_is_looked_at(last):
    with pytest.raises(ew.ArchitectureError, match="of masks, the causal one is read"):
        ew.from_module(TwiceMasked(16, last=last).eval(), (3, 24))


def test_torch_masks_of_many_steps_are_computed_once():
    assert [one.causal for one in heads_of(TwiceMasked(16, last=True, hides=False), (3, 24))] == [True]
