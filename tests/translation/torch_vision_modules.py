"""PyTorch modules of the shapes that torchvision has, small: parts of channels, layer scales, classes as tokens."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

OUTPUTS = 256


class Adapted(nn.Module):
    """A pooling to windows of different sizes, as in VGG for images of any size."""

    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d((4, 2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(8 * width, width), nn.ReLU(), nn.Linear(width, OUTPUTS))

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class ShuffleUnit(nn.Module):
    """Half of the channels pass, the others are convolved, and both are mixed."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.first, self.last = nn.Conv1d(half, half, 1), nn.Conv1d(half, half, 1)
        self.depthwise = nn.Conv1d(half, half, 3, padding=1, groups=half, bias=False)

    def forward(self, x):
        one, two = x.chunk(2, dim=1)
        x = torch.cat((one, F.relu(self.last(self.depthwise(F.relu(self.first(two)))))), 1)
        n, channels, length = x.size()
        x = x.view(n, 2, channels // 2, length)
        return torch.transpose(x, 1, 2).contiguous().view(n, channels, length)


class ShuffleNet(nn.Module):
    """Two such units behind each other: the second passes what the first has convolved."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 3)
        self.units = nn.Sequential(ShuffleUnit(width), ShuffleUnit(width))
        self.fc = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        return self.fc(self.units(F.relu(self.stem(x))).mean(-1))


class LayerNorm1d(nn.LayerNorm):
    """Over the channels of an array that has them first."""

    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 2, 1)


class ConvNext(nn.Module):
    """Depthwise windows, an inverted bottleneck, and a factor for each channel that begins small."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(4, width, 1), LayerNorm1d(width, eps=1e-6))
        self.depthwise = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width, 1) * 0.5)
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.stem(x)
        inside = self.norm(self.depthwise(x).permute(0, 2, 1))
        inside = self.down(F.gelu(self.up(inside))).permute(0, 2, 1)
        return self.head((x + self.scale * inside).mean(-1))


class GatedLinear(nn.Module):
    """Two halves of one linear map, one of which gates the other; and a part of the channels by a slice."""

    def __init__(self, width):
        super().__init__()
        self.both, self.again = nn.Linear(48, 2 * width), nn.Linear(width, 4 * width)
        self.glu, self.fc = nn.GLU(), nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        value, gate = self.both(x).split(self.again.in_features, dim=-1)
        x = self.glu(self.again(value * torch.tanh(gate)))
        return self.fc(x[:, : self.fc.in_features])


def unit(*shape):
    """Random numbers whose mean square is 1 in every draw: it is what the translation takes from the module."""
    x = torch.randn(*shape)
    return x / x.square().mean().sqrt()


class ClassToken(nn.Module):
    """A vision transformer that reads a token of its own, with learned positions."""

    def __init__(self, width):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 3, stride=3)
        self.token = nn.Parameter(unit(1, 1, width))
        self.positions = nn.Parameter(0.5 * unit(1, 5, width))
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        y = self.norm(x)
        return self.head((x + self.attend(y, y, y, need_weights=False)[0])[:, 0])


class Excited(nn.Module):
    """An inverted bottleneck with squeeze and excitation behind its depthwise convolution."""

    def __init__(self, width):
        super().__init__()
        self.expand, self.project = nn.Conv1d(4, width, 1), nn.Conv1d(width, width, 1, bias=False)
        self.depthwise = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.squeeze, self.excite = nn.Conv1d(width, width // 4, 1), nn.Conv1d(width // 4, width, 1)
        self.pool, self.fc = nn.AdaptiveAvgPool1d(1), nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        x = F.silu(self.depthwise(F.silu(self.expand(x))))
        x = x * torch.sigmoid(self.excite(F.silu(self.squeeze(self.pool(x)))))
        return self.fc(self.project(x).mean(-1))


def convolved(before, after, size=3, **how):
    """A convolution without a bias: those of hidden layers fall like 1 / width, and hide what is left of a signal."""
    return nn.Conv2d(before, after, size, padding=size // 2, bias=False, **how)


class Upsampled(nn.Module):
    """Sites repeated by whole factors, by a layer and by a call, between convolutions that tell sites apart."""

    def __init__(self, width):
        super().__init__()
        self.first, self.up = convolved(3, width), nn.Upsample(scale_factor=2)
        self.last = nn.Conv2d(width, width, 2, bias=False)
        self.fc = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        x = self.up(F.relu(self.first(x)))
        x = F.relu(self.last(F.interpolate(x, scale_factor=(1, 3), mode="nearest")))
        return self.fc(x[:, :, -1, 1:].mean(2))


class UNet(nn.Module):
    """Down and up again, with what was there before beside it."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm = convolved(3, width), nn.BatchNorm2d(width, eps=0.1)
        self.down, self.pool = convolved(width, 2 * width), nn.AvgPool2d(2)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2, bias=False)
        self.both, self.out = convolved(2 * width, width), nn.Conv2d(width, OUTPUTS, 1, bias=False)

    def forward(self, x):
        before = F.relu(self.norm(self.first(x)), inplace=True)
        x = self.up(F.relu(self.down(self.pool(before))))
        x = F.relu(self.both(torch.cat([before, x], dim=1)))
        return self.out(x).mean((2, 3))


class Grouped(nn.Module):
    """A bottleneck of ResNeXt: 3 x 3 in groups, and a projected skip."""

    def __init__(self, width):
        super().__init__()
        self.stem, self.short = convolved(3, width), convolved(width, 2 * width, 1, stride=2)
        self.layers = nn.Sequential(
            *(convolved(width, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(convolved(width, width, stride=2, groups=4), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            convolved(width, 2 * width, 1),
        )
        self.fc = nn.Linear(2 * width, OUTPUTS, bias=False)

    def forward(self, x):
        x = F.relu(self.stem(x))
        out = self.layers(x)
        out += self.short(x)
        return self.fc(F.adaptive_avg_pool2d(F.relu(out, inplace=True), 1).flatten(1))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2, its last map linear."""

    def __init__(self, width):
        super().__init__()
        self.stem = convolved(3, width)
        self.layers = nn.Sequential(
            *(convolved(width, 2 * width, 1), nn.BatchNorm2d(2 * width), nn.ReLU6(inplace=True)),
            *(convolved(2 * width, 2 * width, groups=2 * width), nn.BatchNorm2d(2 * width), nn.ReLU6(inplace=True)),
            *(convolved(2 * width, width, 1), nn.BatchNorm2d(width)),
        )
        self.fc = nn.Sequential(nn.Dropout(0.2), nn.Linear(width, OUTPUTS, bias=False))

    def forward(self, x):
        x = self.stem(x)
        return self.fc(F.relu6(x + self.layers(x)).mean([2, 3]))


class Squeezed(nn.Module):
    """Squeeze and excitation of a branch, by linear maps, and an activation behind the sum."""

    def __init__(self, width):
        super().__init__()
        self.stem, self.conv, self.pool = convolved(3, width), convolved(width, width), nn.AdaptiveAvgPool2d(1)
        maps = nn.Linear(width, width // 4, bias=False), nn.Linear(width // 4, width, bias=False)
        self.weigh = nn.Sequential(maps[0], nn.ReLU(inplace=True), maps[1], nn.Sigmoid())
        self.fc = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x):
        x = F.relu(self.stem(x))
        inside = self.conv(x)
        n, channels, _, _ = inside.size()
        scale = self.weigh(self.pool(inside).view(n, channels)).view(n, channels, 1, 1)
        return self.fc(F.relu(x + inside * scale.expand_as(inside)).mean((2, 3)))


class Text(nn.Module):
    """Windows of two sizes over tokens, and the largest number of each over the sequence."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.windows = nn.ModuleList([nn.Conv1d(width, width, size, bias=False) for size in (2, 3)])
        self.fc = nn.Linear(2 * width, OUTPUTS, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens).permute(0, 2, 1)
        first, second = (F.relu(one(x)) for one in self.windows)
        return self.fc(torch.cat([F.max_pool1d(first, first.size(2)).squeeze(2), second.max(dim=2)[0]], 1))


CASES = {
    "upsampled": (Upsampled, (3, 3, 3), 300, {"Conv", "SiteMap", "Index"}),
    "u-net": (UNet, (3, 4, 4), 100, {"Concat", "ConvTranspose", "AvgPool"}),
    "grouped": (Grouped, (3, 4, 4), 100, {"ConvGrouped", "Sum"}),
    "adapted": (Adapted, (3, 6, 7), 100, {"SiteMap", "Flatten"}),
    "shuffled": (ShuffleNet, (4, 6), 100, {"Part", "Shuffle", "ConvDepthwise", "Concat"}),
    "layer scale": (ConvNext, (4, 5), 100, {"ConvDepthwise", "LayerNorm", "Scale"}),
}
AT_ONE_WIDTH = {
    "gated linear": (GatedLinear, (48,), 64, 300, {"Part", "Product"}),
    "excited": (Excited, (4, 5), 64, 300, {"Sampled", "ConvDepthwise", "Product"}),
}
SAMPLED_CASES = {
    "class token": (ClassToken, (3, 6, 6), 100, {"Sampled", "SelfAttention", "PositionEmbedding", "Concat"}),
    "inverted": (Inverted, (3, 4, 4), 100, {"Sampled", "ConvDepthwise", "Sum"}),
    "squeezed": (Squeezed, (3, 4, 4), 100, {"Sampled", "Product", "Everywhere"}),
    "text": (Text, (5,), 100, {"Sampled", "MaxPool", "Concat", "Embedding"}),
}
