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
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.out = kind(5, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


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
    "gru": (lambda: Recurrent(nn.GRU), TOKENS),
    "lstm": (lambda: Recurrent(nn.LSTM), TOKENS),
    "merged tokens": (MergedTokens, TOKENS),
    "routed": (Routed, ROWS),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), ROWS),
}
