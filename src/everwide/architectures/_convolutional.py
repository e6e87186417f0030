"""Networks for images."""

from collections.abc import Sequence

from .._checks import InputError, whole
from ..activations import AbstractActivation, Relu
from ..layers import (
    AbstractLayer,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    Identity,
    Serial,
    Sum,
)
from ._dense import B_STD, W_STD

_MYRTLE = {5: (2, 1, 1), 7: (2, 2, 2), 10: (3, 3, 3)}  # depth: convolutions before each pooling


def cnn(
    outputs: int = 1,
    *,
    depth: int = 3,
    window: Sequence[int] = (3, 3),
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = B_STD,
    pooled: bool = False,
) -> Serial:
    """Convolutions and activations, read by a dense layer of all places, or of their mean.

    LeCun et al., "Gradient-based learning applied to document recognition" (1998); its kernels: Novak et al., "Bayesian
    deep convolutional networks with many channels are Gaussian processes" (2019), Arora et al. (2019).

    Args:
        outputs: Their number.
        depth: Convolutions.
        window: Of each; one number for each site axis, so `(3,)` is for sequences.
        activation: `None` is `Relu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.
        pooled: Read the mean over all places, which needs all pairs of them.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.architectures.cnn(10), np.ones((2, 8, 8, 3))).shape
    (2, 2)
    """
    act = Relu() if activation is None else activation
    conv = Conv(window, w_std=w_std, b_std=b_std)
    end = GlobalAvgPool() if pooled else Flatten()
    return Serial(*[conv, act] * whole(depth, "depth"), end, Dense(outputs, w_std=w_std, b_std=b_std))


def myrtle(
    outputs: int = 10,
    *,
    depth: int = 5,
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = None,
) -> Serial:
    """The Myrtle network: convolutions of 3 x 3 with two poolings between them, and the mean of all places.

    Shankar et al., "Neural kernels without tangents" (2020), who found that of all simple architectures its kernel
    does best on CIFAR-10.

    Args:
        outputs: Their number.
        depth: 5, 7 or 10.
        activation: `None` is `Relu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases; theirs has none.

    Returns:
        The network, for images whose sides are multiples of 4.

    >>> import everwide as ew
    >>> ew.explain(ew.architectures.myrtle(), (32, 32, 3)).steps[-1].after.shape
    (10,)
    """
    if depth not in _MYRTLE:
        raise InputError(f"depth={depth!r}: a Myrtle network has a depth of {', '.join(map(str, _MYRTLE))}.")
    act = Relu() if activation is None else activation
    pair = [Conv((3, 3), w_std=w_std, b_std=b_std), act]
    first, second, third = (pair * n for n in _MYRTLE[depth])
    pool = AvgPool((2, 2))
    return Serial(*first, pool, *second, pool, *third, GlobalAvgPool(), Dense(outputs, w_std=w_std, b_std=b_std))


def resnet(
    outputs: int = 10,
    *,
    stages: Sequence[int] = (2, 2, 2, 2),
    bottleneck: bool = False,
    norm: AbstractLayer | None = None,
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = None,
) -> Serial:
    """Residual blocks in stages, each but the first of half the resolution, in the order of pre-activation.

    He, Zhang, Ren, Sun, "Deep residual learning for image recognition" and "Identity mappings in deep residual
    networks" (2016). `stages` of (2, 2, 2, 2) are ResNet-18, (3, 4, 6, 3) ResNet-34, and with bottlenecks ResNet-50;
    (n, n, n) is ResNet-(6n + 2) for CIFAR. Widths of stages, which double, are one and the same at infinite width. The
    stem is one convolution of 3 x 3; the activation stands before each convolution, because the sum of a rectified
    signal and a branch, which the first version rectifies, has no known law.

    Args:
        outputs: Their number.
        stages: Blocks of each.
        bottleneck: Blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions, not of two of 3 x 3.
        norm: What normalizes before each activation, such as `LayerNorm()` or `GroupNorm(8)`. Without it, branches are
            divided by the root of their number, so that signals keep their size at any depth.
        activation: `None` is `Relu()`.
        w_std: Of weights that read activations, as in `Dense`.
        b_std: Of all biases.

    Returns:
        The network.

    >>> import everwide as ew
    >>> net = ew.architectures.resnet(stages=(1, 1), norm=ew.LayerNorm())
    >>> ew.explain(net, (8, 8, 3)).steps[-1].after.shape
    (10,)
    """
    act = Relu() if activation is None else activation
    counts = [whole(n, "stages") for n in stages]
    last = w_std if norm is not None else w_std / sum(counts) ** 0.5
    ready = [act] if norm is None else [norm, act]

    def conv(side: int, stride: int = 1, std: float = w_std) -> Conv:
        return Conv((side, side), strides=stride, w_std=std, b_std=b_std)

    def block(stride: int) -> Sum:
        skip = Identity() if stride == 1 else conv(1, stride, 1.0)
        if bottleneck:
            branch = (*ready, conv(1), *ready, conv(3, stride), *ready, conv(1, std=last))
        else:
            branch = (*ready, conv(3, stride), *ready, conv(3, std=last))
        return Sum(skip, Serial(*branch))

    strides = [2 if stage and not i else 1 for stage, n in enumerate(counts) for i in range(n)]
    end = (*ready, GlobalAvgPool(), Dense(outputs, b_std=b_std))
    return Serial(conv(3, std=1.0), *(block(stride) for stride in strides), *end)


def wide_resnet(
    outputs: int = 10,
    *,
    depth: int = 28,
    norm: AbstractLayer | None = None,
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = None,
) -> Serial:
    """Three stages of residual blocks; Zagoruyko, Komodakis, "Wide residual networks" (2016).

    Args:
        outputs: Their number.
        depth: 6n + 4, with n blocks a stage; the factor by which a network is widened is infinite here.
        norm: As in `resnet`.
        activation: `None` is `Relu()`.
        w_std: As in `resnet`.
        b_std: Of all biases.

    Returns:
        The network.

    >>> import everwide as ew
    >>> ew.explain(ew.architectures.wide_resnet(depth=10), (8, 8, 3)).steps[-1].after.shape
    (10,)
    """
    if whole(depth, "depth", 10) % 6 != 4:
        raise InputError(f"depth={depth}: a wide ResNet has a depth of 6n + 4, such as 10, 16, 22 or 28.")
    blocks = (depth - 4) // 6
    return resnet(outputs, stages=(blocks,) * 3, norm=norm, activation=activation, w_std=w_std, b_std=b_std)
