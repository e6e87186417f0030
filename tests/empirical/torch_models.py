"""PyTorch modules that use their parameters in many ways, and data for them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is large: make test-torch installs it")
nn = torch.nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        x = x + torch.tanh(self.inner(x))
        x = x + torch.relu_(self.inner(x))  # called twice, once followed by an operation in place
        return self.out(x)


class Elsewhere(nn.Module):
    """The weight of a layer is also used outside of it, and one parameter belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 2)
        self.scale, self.unused = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)) @ self.a.weight.T * self.scale) + self.scale.sum()


class LanguageModel(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.table, self.mix, self.out = nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
        if tied:
            self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(torch.tanh(self.mix(self.table(ids)))).mean(1)


class Transformer(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.batch_first = batch_first
        self.read = nn.Linear(5, 6)
        self.block = nn.TransformerEncoderLayer(6, 2, 8, batch_first=batch_first)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = self.read(x)
        x = self.block(x) if self.batch_first else self.block(x.transpose(0, 1)).transpose(0, 1)
        return self.out(x).mean(1)


class Recurrent(nn.Module):
    """Reads hidden states and the last state; with a learned start, or none."""

    def __init__(self, kind, starts=False, **options):
        super().__init__()
        self.rnn = kind(5, 4, **options)
        ways = 2 if self.rnn.bidirectional else 1
        self.out = nn.Linear(4 * ways, 2)
        self.start = nn.Parameter(torch.ones(self.rnn.num_layers * ways, 1, 4)) if starts else None

    def forward(self, x):
        first = self.rnn.batch_first
        start = None if self.start is None else self.start.expand(-1, len(x), -1)
        hidden, last = self.rnn(x if first else x.transpose(0, 1), start)
        last = last[0] if isinstance(last, tuple) else last
        return self.out((hidden if first else hidden.transpose(0, 1))[:, 1]) + last.sum((0, 2))[:, None]


class Attending(nn.Module):
    """Attention of one sequence to another, with masks."""

    def __init__(self, masks, **options):
        super().__init__()
        self.a, self.masks = nn.MultiheadAttention(6, 2, batch_first=True, **options), masks
        self.read, self.key, self.out = nn.Linear(5, 6), nn.Linear(5, options.get("kdim", 6)), nn.Linear(6, 2)

    def forward(self, x):
        query, key = self.read(x), self.key(x.flip(1))
        given = {}
        if self.masks:
            given["key_padding_mask"] = torch.zeros(x.shape[:2], dtype=torch.bool)
            given["key_padding_mask"][:, 0] = True
            given["attn_mask"] = torch.full((3, 3), -0.5, dtype=x.dtype).triu(1)
            given["key_padding_mask"] = given["key_padding_mask"].to(x.dtype) * -9
        y, shares = self.a(query, key, torch.tanh(key), **given)
        return self.out(y).mean(1) + shares[:, 0, :2]


class Opening(nn.Module):
    """Transposed convolutions, with everything that they can be told."""

    def __init__(self):
        super().__init__()
        self.a = nn.ConvTranspose2d(2, 4, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2)
        self.b = nn.ConvTranspose2d(4, 3, 2, dilation=3, output_padding=2, bias=False)
        self.c = nn.ConvTranspose1d(3, 2, 3, stride=2)

    def forward(self, x):
        y = self.b(torch.tanh(self.a(x[:, :, :3, :3]))).mean(-1)
        return torch.sin(self.c(y)).mean(-1)


class MergedTokens(nn.Module):
    """Examples and tokens share one axis."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = torch.tanh(self.a(x.reshape(-1, 5)))
        return self.b(y.reshape(len(x), -1, 4).mean(1))


class Routed(nn.Module):
    """Which expert sees an example depends on the example."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 2), nn.Linear(5, 2)

    def forward(self, x):
        first = x[:, 0] > 0
        y = torch.zeros(len(x), 2, dtype=x.dtype)
        y[first], y[~first] = self.a(x[first]), self.b(x[~first])
        return y


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, padding_mode="circular"),
        nn.ReLU(inplace=True),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 6, (3, 2), padding="same", dilation=(1, 2), groups=2),
        nn.BatchNorm2d(6),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6 * 9, 3),
    )


def convolutions_of_other_rank():
    return nn.Sequential(
        nn.Conv1d(3, 4, 2, padding=1, padding_mode="replicate", bias=False),
        nn.Tanh(),
        nn.Unflatten(2, (2, 1, 3)),
        nn.Conv3d(4, 2, (2, 1, 2), padding="valid"),
        nn.Flatten(),
        nn.LayerNorm(4),
        nn.RMSNorm(4),
        nn.Linear(4, 1),
    )


RANDOM = np.random.default_rng(0)
ROWS, IMAGES, TOKENS = RANDOM.normal(size=(5, 5)), RANDOM.normal(size=(5, 2, 6, 6)), RANDOM.normal(size=(5, 3, 5))
IDS = RANDOM.integers(0, 7, (5, 4))
CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.Linear(4, 3)), ROWS),
    "cnn": (cnn, IMAGES),
    "conv1d and conv3d": (convolutions_of_other_rank, RANDOM.normal(size=(5, 3, 5))),
    "residual": (Residual, ROWS),
    "elsewhere": (Elsewhere, ROWS),
    "embedding": (lambda: LanguageModel(False), IDS),
    "tied language model": (lambda: LanguageModel(True), IDS),
    "transformer": (lambda: Transformer(True), TOKENS),
    "transformer, examples second": (lambda: Transformer(False), TOKENS),
    "gru": (lambda: Recurrent(nn.GRU, batch_first=True), TOKENS),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), TOKENS),
    "rnn": (lambda: Recurrent(nn.RNN, starts=True, nonlinearity="relu", bias=False), TOKENS),
    "attention": (lambda: Attending(True), TOKENS),
    "attention with keys of their own": (lambda: Attending(False, kdim=4, vdim=4), TOKENS),
    "attention with a learned key": (lambda: Attending(False, add_bias_kv=True), TOKENS),
    "transposed convolutions": (Opening, IMAGES),
    "merged tokens": (MergedTokens, TOKENS),
    "routed": (Routed, ROWS),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), ROWS),
}
