"""PyTorch modules with fixed vectors of places, as people write them; `width` scales all of their layers."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

OUTPUTS, HEADS = 256, 4


def sines(length, width):
    """The table of Vaswani et al.: sines and cosines of places, from fast to slow."""
    places = torch.arange(length).float().unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(places * rates), torch.cos(places * rates)
    return table


class PositionalEncoding(nn.Module):
    """That of PyTorch's tutorial, with examples first."""

    def __init__(self, width, length=50):
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("pe", sines(length, width).unsqueeze(0))

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)])


class Sines(nn.Module):
    """Fixed positions before a block that normalizes first: its means over channels are not zero, and it sees that."""

    def __init__(self, width, *, attends=False):
        super().__init__()
        self.embed, self.places = nn.Linear(24, width), PositionalEncoding(width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, OUTPUTS)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.attend = nn.MultiheadAttention(width, HEADS, batch_first=True) if attends else None

    def forward(self, x):
        x = self.places(self.embed(x))
        if self.attend is not None:
            x = x + self.attend(x, x, x)[0]
        return self.head((x + self.mlp(self.norm(x)))[:, 1])


class Frozen(nn.Module):
    """Patches of an image, in rows and columns, with a parameter that holds sines and is not trained."""

    def __init__(self, width):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, width, 4, stride=4), nn.Linear(width, OUTPUTS)
        self.pos_embed = nn.Parameter(sines(4, width).unsqueeze(0), requires_grad=False)
        self.read = nn.Linear(width, width)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head(torch.tanh(self.read(x)).mean(1))


# Shape of an example, draws, and layers that the translation must have.
CASES = {
    "sines": (Sines, (3, 24), 100, {"FixedVectors", "LayerNorm"}),
    "frozen": (Frozen, (3, 8, 8), 100, {"FixedVectors"}),
}
SAMPLED_CASES = {
    "sines, attention": (lambda width: Sines(width, attends=True), (3, 24), 100, {"FixedVectors", "Sampled"}),
}
