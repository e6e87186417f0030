"""PyTorch modules of the shapes that people have, small; `width` scales all of their layers.

The variance of hidden biases falls like 1 / width. Where they would be most of the kernel, the last layer has none, and
draws are compared at one width: what the biases of other layers add is seen there, and so is what comes of the weights.
"""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from translation import torch_vision_modules as vision  # noqa: E402

OUTPUTS = 256


class Mlp(nn.Module):
    """Functional calls only."""

    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(48, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc3(torch.tanh(self.fc2(x)))


def lenet(width):
    """Sequential, with average pooling as in the paper."""
    return nn.Sequential(
        nn.Conv2d(3, width, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, 3),
        nn.ReLU(),
        nn.AvgPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(2 * width, 2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, OUTPUTS, bias=False),
    )


class AlexNet(nn.Module):
    """Features, a pool of a given size, a classifier with dropout; view with the size of the batch."""

    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, kernel_size=3, padding=1, dilation=1),
            nn.ReLU(inplace=True),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(width * 4, width), nn.ReLU(inplace=True), nn.Linear(width, OUTPUTS, bias=False)
        )

    def forward(self, x):
        x = self.avgpool(self.features(x))
        x = x.view(x.size(0), -1)
        return self.classifier(x)


class Vgg(nn.Module):
    """A block with batch normalization (as before training), read by the mean over all places."""

    def __init__(self, width):
        super().__init__()
        layers = []
        for before in (3, width, width):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width, eps=0.2), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        return self.head(self.features(x).mean([2, 3]))


class PreActivation(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, before, width, stride, norm):
        super().__init__()
        self.norm = nn.GroupNorm(1, before) if norm else nn.Identity()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(before, width, 1, stride=stride, bias=False) if stride > 1 else None
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.conv2(self.relu(self.conv1(self.relu(self.norm(x)))))
        out += x if self.shortcut is None else self.shortcut(x)
        return out


class ResNet(nn.Module):
    """Two blocks, the second with a stride and a projection."""

    def __init__(self, width, norm=False):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.Sequential(PreActivation(width, width, 1, norm), PreActivation(width, width, 2, norm))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = F.relu(self.layers(self.stem(x)))
        return self.fc(torch.flatten(self.pool(x), 1))


class Projected(nn.Module):
    """A block whose last activation follows the sum: both branches end with weights."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 3)
        self.main = nn.Conv1d(width, width, 3, padding="same")
        self.short = nn.Conv1d(width, width, 1)
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = F.leaky_relu(self.stem(x), 0.3)
        x = F.relu(self.short(x) - 0.5 * self.main(x))
        return self.fc(x.mean(-1))


class DenseBlock(nn.Module):
    """Every layer reads all before it, with the activation after the concatenation."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.grow = nn.ModuleList([nn.Conv2d(n * width, width, 3, padding=1) for n in (1, 2)])
        self.fc = nn.Linear(3 * width, OUTPUTS)

    def forward(self, x):
        parts = [self.stem(x)]
        for layer in self.grow:
            parts.append(layer(F.relu(torch.cat(parts, 1))))
        return self.fc(F.adaptive_avg_pool2d(F.relu(torch.cat(parts, dim=1)), 1).flatten(1))


class Squeeze(nn.Module):
    """Channels are weighed by what a small network makes of their means."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 1)
        self.up = nn.Conv2d(width, width, 1)
        self.last = nn.Conv2d(width, width, 1)
        self.fc = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        x = self.conv(x)
        scale = F.adaptive_avg_pool2d(F.relu(x), 1)
        scale = torch.sigmoid(self.up(F.relu(self.down(scale))))
        x = F.relu(self.last(x * scale))
        return self.fc(x.mean((2, 3)))


class Tokens(nn.Module):
    """A sequence, channels last: a normalized feed-forward block, read at the first token."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Linear(24, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.mlp(self.norm(x))
        return self.head(x[:, 0])


class Patches(nn.Module):
    """Patches of an image as tokens: flattened sites, moved behind the others."""

    def __init__(self, width):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, width), nn.Linear(width, width)
        self.down = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = self.norm(x)
        x = F.silu(self.gate(x)) * self.up(x)
        return self.down(x).mean(1)


class Decoder(nn.Module):
    """Upsampling by a transposed convolution."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3)
        self.up = nn.ConvTranspose2d(width, 2 * width, 3, stride=2, padding=1, output_padding=1)
        self.fc = nn.Linear(2 * width, OUTPUTS, bias=False)

    def forward(self, x):
        x = self.up(F.relu(self.first(x)))
        return self.fc(F.elu(x).mean(dim=(2, 3)))


class Pooled(nn.Module):
    """The largest numbers in windows: before an activation, and after one."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.pool(F.relu(self.first(x)))
        x = F.relu(F.max_pool2d(self.second(x), 2, ceil_mode=True))
        return self.fc(x.flatten(1))


class Separable(nn.Module):
    """Depthwise and grouped convolutions, each behind a pointwise one."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(4, width, 1)
        self.depthwise = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)
        self.grouped = nn.Conv1d(width, width, 3, groups=2)
        self.fc = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        x = self.pointwise(self.depthwise(F.relu(self.first(x))))
        return self.fc(F.relu(self.grouped(F.relu(x))).mean(-1))


class Mobile(nn.Module):
    """An activation right behind a depthwise convolution, and statistics of single channels."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(4, width, 1)
        self.depthwise = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)
        self.norm = nn.InstanceNorm1d(width, affine=True)
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.pointwise(F.relu6(self.depthwise(F.relu6(self.first(x)))))
        return self.fc(F.relu(self.norm(x))[:, :, 0])


class PostActivation(nn.Module):
    """A block of the first residual networks: its skip is not Gaussian, and its last activation follows the sum."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 3)
        self.conv1 = nn.Conv1d(width, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(x + self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean(-1))


class Words(nn.Module):
    """Tokens with learned positions of both kinds."""

    def __init__(self, width):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(9, width)
        self.more = nn.Parameter(0.5 * torch.randn(1, 9, width))
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.size(1), device=tokens.device))
        x = x + self.more[:, : tokens.size(1)]
        return self.head(x + self.mlp(x)).mean(1)


class Recurrent(nn.Module):
    """States at all times of two layers, in both directions, and the last of another layer."""

    def __init__(self, width):
        super().__init__()
        self.both = nn.RNN(24, width, 2, nonlinearity="relu", bidirectional=True, batch_first=True)
        self.last = nn.RNN(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        states, _ = self.both(x, torch.zeros(4, x.size(0), self.both.hidden_size))
        _, last = self.last(states)
        return self.head(last[-1])


class Gates(nn.Module):
    """Gated units over the input, and over states of other gates."""

    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(24, width, batch_first=True)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, OUTPUTS)

    def forward(self, x):
        states, (_, _) = self.lstm(x)
        return self.head(self.gru(states)[0].mean(1))


class Transformer(nn.Module):
    """Layers of torch's own encoder, normalized first and last, and attention by itself."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Linear(24, width)
        first = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True, activation="gelu")
        self.blocks = nn.TransformerEncoder(first, 1, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.blocks(self.embed(x))
        return self.head(self.attend(x, x, x, need_weights=False)[0].mean(1))


VOCABULARY = 5
IMAGE = (3, 6, 6)
# Shape of an example, draws, and layers that the translation must have.
CASES = {
    "mlp": (Mlp, (48,), 100, {"Dense", "Relu"}),
    "resnet": (ResNet, IMAGE, 100, {"Sum", "GlobalAvgPool"}),
    "resnet with norm": (lambda width: ResNet(width, norm=True), IMAGE, 100, {"Sum", "LayerNorm"}),
    "projected": (Projected, (4, 9), 100, {"Sum", "Scale", "LeakyRelu"}),
    "dense block": (DenseBlock, IMAGE, 100, {"Concat", "Relu"}),
    "tokens": (Tokens, (5, 24), 100, {"LayerNorm", "Gelu", "Index"}),
    "patches": (Patches, (3, 8, 8), 100, {"Product", "RmsNorm"}),
    "words": (Words, (6,), 100, {"Embedding", "PositionEmbedding", "Sum"}),
    **vision.CASES,
}
# Those that are compared at one width, which comes before the draws.
AT_ONE_WIDTH = {
    "lenet": (lenet, (3, 8, 8), 64, 300, {"Conv", "AvgPool", "GlobalAvgPool"}),
    "alexnet": (AlexNet, (3, 8, 8), 64, 900, {"Conv", "AvgPool", "Flatten"}),
    "vgg": (Vgg, IMAGE, 64, 300, {"Conv", "Scale", "GlobalAvgPool"}),
    "squeeze": (Squeeze, IMAGE, 64, 300, {"Product", "SiteMap"}),
    "decoder": (Decoder, IMAGE, 64, 300, {"ConvTranspose"}),
    "separable": (Separable, (4, 5), 64, 300, {"ConvDepthwise", "ConvGrouped"}),
    # Weights that are used again at all times make more of what falls like 1 / width.
    "recurrent": (Recurrent, (4, 24), 128, 200, {"Recurrent", "Concat", "Index"}),
    **vision.AT_ONE_WIDTH,
}
# Those of which a part is sampled.
SAMPLED_CASES = {
    "pooled": (Pooled, IMAGE, 100, {"Sampled", "MaxPool"}),
    "mobile": (Mobile, (4, 5), 100, {"Sampled", "ConvDepthwise", "InstanceNorm"}),
    "post-activation": (PostActivation, (4, 5), 100, {"Sampled", "Sum"}),
    "gates": (Gates, (3, 24), 100, {"Sampled", "Lstm", "Gru"}),
    "transformer": (Transformer, (3, 24), 100, {"Sampled", "SelfAttention", "Gelu"}),
    **vision.SAMPLED_CASES,
}
