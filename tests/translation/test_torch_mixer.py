"""MLP-Mixers as people write them in PyTorch: transposes, or convolutions of size 1, mix the places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide._walk import walk
from everwide.kernel import Example
from everwide.translation._mix import Mix

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from translation.draws import require_agreement, require_agreement_at  # noqa: E402 - where there is torch
from translation.test_torch_modules import torch_kernels  # noqa: E402
from translation.test_torch_refusals import Module  # noqa: E402

pytestmark = pytest.mark.wide
OUTPUTS, PLACES, HIDDEN = 256, 4, 6


class Mixer(nn.Module):
    """Patches as places, and blocks that mix them."""

    def __init__(self, width, *, blocks=1, convolved=False):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, width, 4, stride=4), nn.Linear(width, OUTPUTS)
        self.blocks = nn.Sequential(*(Block(width, convolved) for _ in range(blocks)))

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Block(nn.Module):
    """Linear maps between two transposes, or convolutions that read places as channels; then those of channels."""

    def __init__(self, width, convolved):
        super().__init__()
        self.convolved = convolved
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        mix = nn.Linear if not convolved else lambda *sizes: nn.Conv1d(*sizes, 1)
        self.mix = nn.Sequential(mix(PLACES, HIDDEN), nn.GELU(), nn.Dropout(0.1), mix(HIDDEN, PLACES))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + (self.mix(y) if self.convolved else self.mix(y.transpose(1, 2)).transpose(1, 2))
        return x + self.mlp(self.norm2(x))


@pytest.mark.slow
def test_torch_mixer():
    require_agreement(lambda width: Mixer(width).eval(), (3, 8, 8), torch_kernels(Mixer, 100), draws=32)


@pytest.mark.slow
def test_torch_mixer_of_two_blocks():
    def make(width):
        return Mixer(width, blocks=2)

    require_agreement_at(lambda width: make(width).eval(), (3, 8, 8), torch_kernels(make, 400), draws=400)


def test_torch_places_are_mixed_by_linear_maps_or_convolutions():
    one, two = (ew.from_module(Mixer(8, convolved=convolved).eval(), (3, 8, 8)) for convolved in (False, True))
    assert [v.layer for v in walk(one.net)] == [v.layer for v in walk(two.net)]
    assert [v.layer.places.width for v in walk(one.net) if isinstance(v.layer, Mix)] == [HIDDEN, PLACES]


@pytest.mark.parametrize("axis", [0, 1])
def test_torch_mixing_computes_what_the_module_computes(axis):
    """With the weights of the module, along either site axis of an image."""
    linear, sites = nn.Linear(5, 7), (5, 5)
    module = Module(
        lambda m, x: m.mix(m.a(x).transpose(axis + 2, 3)).transpose(axis + 2, 3), a=nn.Conv2d(2, 3, 1), mix=linear
    )
    limit = ew.from_module(module, (2, *sites))
    (layer,) = (visit.layer for visit in walk(limit.net) if isinstance(visit.layer, Mix))
    assert layer.axis == axis
    drawn = layer.init(jax.random.key(0), (*sites, 3), parametrization="standard")
    weight, bias = (jnp.asarray(one.detach().numpy()) for one in (linear.weight.T, linear.bias))
    x = np.random.default_rng(0).normal(size=(*sites, 3)).astype(np.float32)
    ours = layer.forward(type(drawn)(weight, bias, drawn.fans), Example(jnp.asarray(x))).x
    theirs = linear(torch.as_tensor(x).movedim(axis, -1)).movedim(-1, axis).detach().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


REFUSED = {
    "places of the input": (lambda m, x: m.mix(x.transpose(2, 3)), (2, 5, 6), "weights over places.*behind a layer"),
    "windows of places": (lambda m, x: m.windows(m.a(x)), (5, 6), "its channels are axis 1"),
    "a part that is not understood is returned": (
        lambda m, x: torch.cumsum(m.a(x).view(x.size(0), 5, 2, 4), 1).flatten(2),
        (5, 6),
        "cumsum is not known",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_torch_places_that_are_not_mixed(name):
    run, shape, message = REFUSED[name]
    module = Module(run, a=nn.Linear(6, 8), mix=nn.Linear(5, 7), windows=nn.Conv1d(5, 7, 3))
    with pytest.raises(ew.ArchitectureError, match=f"(?s){message}"):
        ew.from_module(module, shape)
