"""PyTorch modules that write attention out, or mask it, as people do; `width` scales all of their layers."""

import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

OUTPUTS, HEADS = 256, 4


class Gpt(nn.Module):
    """A block of a small GPT: one map for queries, keys and values; fused attention, or a product with a mask."""

    def __init__(self, width, *, fused=True):
        super().__init__()
        self.width, self.fused = width, fused
        self.embed, self.head = nn.Linear(24, width), nn.Linear(width, OUTPUTS, bias=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def attend(self, x):
        batch, length, width = x.size()
        q, k, v = self.read(x).split(self.width, dim=2)
        q, k, v = (a.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for a in (q, k, v))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            y = self.dropout(F.softmax(scores, dim=-1)) @ v
        return self.project(y.transpose(1, 2).contiguous().view(batch, length, width))

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attend(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, -1])


class Relative(nn.Module):
    """Attention of T5: scores without a factor, plus numbers of a learned table by buckets of distances."""

    def __init__(self, width, *, own=False):
        super().__init__()
        self.embed, self.head = nn.Linear(24, width), nn.Linear(width, OUTPUTS)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.own = own
        if own:
            table = torch.randn(5, HEADS)
            self.table = nn.Parameter(2 * table / table.square().mean().sqrt())
            places = torch.arange(3)
            self.register_buffer("index", places[:, None] - places[None, :] + 2)
        else:
            self.table = nn.Embedding(5, HEADS)

    def bias(self, length):
        if self.own:
            return self.table[self.index.view(-1)].view(length, length, HEADS).permute(2, 0, 1).unsqueeze(0)
        places = torch.arange(length)
        buckets = torch.clamp(places[None, :] - places[:, None] + 2, 0, 3)
        return self.table(buckets).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x):
        x = self.embed(x)
        batch, length, width = x.shape
        q, k, v = (one(x).view(batch, length, HEADS, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(3, 2)) + self.bias(length)
        y = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(scores), v)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.head((x + self.o(y)).mean(1))


class Masked(nn.Module):
    """Layers of torch with a causal mask."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.head = nn.Linear(24, width), nn.Linear(width, OUTPUTS)
        layer = nn.TransformerEncoderLayer(width, HEADS, 2 * width, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.attend = nn.MultiheadAttention(width, HEADS, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.ones(3, 3, dtype=torch.bool), diagonal=1))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        x = self.encoder(self.embed(x), mask=mask, is_causal=True)
        return self.head(self.attend(x, x, x, attn_mask=self.mask)[0][:, 1])


class Patches(nn.Module):
    """A vision transformer of the most common code: queries, keys and values are pieces of one map."""

    def __init__(self, width):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, width, 4, stride=4), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.scale, self.head = (width // HEADS) ** -0.5, nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        n, sites, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(n, sites, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = ((q @ k.transpose(-2, -1)) * self.scale).softmax(-1)
        return self.head((x + self.proj((weights @ v).transpose(1, 2).reshape(n, sites, width))).mean(1))


# Shape of an example, draws, and layers that the translation must have.
SAMPLED_CASES = {
    "gpt": (Gpt, (3, 24), 100, {"Sampled", "Heads"}),
    "gpt, written out": (lambda width: Gpt(width, fused=False), (3, 24), 100, {"Sampled", "Heads"}),
    "relative": (Relative, (3, 24), 100, {"Sampled", "Heads"}),
    "relative, a table of its own": (lambda width: Relative(width, own=True), (3, 24), 100, {"Sampled", "Heads"}),
    "masked": (Masked, (3, 24), 60, {"Sampled", "SelfAttention"}),
    "patches, written out": (Patches, (3, 8, 8), 100, {"Sampled", "Heads"}),
}
