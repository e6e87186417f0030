"""Networks by name, for those who have none of their own."""

from ._checks import InputError
from .activations import Relu
from .layers import AbstractLayer, Conv, Dense, Flatten, GlobalAvgPool, Residual, Serial

PRESETS = {  # and what they are
    "mlp": "3 hidden dense layers, Relu",
    "cnn": "3 convolutions of 3 x 3, flattened, Relu",
    "resnet": "2 residual blocks of 2 convolutions of 3 x 3, pooled, Relu",
}
_W, _B = 2**0.5, 0.1  # keeps the size of a signal from layer to layer


def preset(name: str, input_shape: tuple[int, ...], outputs: int = 1) -> AbstractLayer:
    """A ReLU network by its name: `"mlp"`, `"cnn"` or `"resnet"`, for examples of this shape.

    Args:
        name: "mlp": three hidden layers; images are flattened. "cnn": three convolutions of 3 x 3, then flattened.
            "resnet": two residual blocks of two convolutions each, then pooled over all places, which needs all pairs
            of pixels: slow beyond 16 x 16. Both need images `(h, w, channels)`.
        input_shape: of one example.
        outputs: their number.

    Returns:
        The network.

    >>> import everwide as ew
    >>> from everwide.estimators import preset
    >>> len(preset("cnn", (8, 8, 1), outputs=10).layers)
    8
    """
    sites = len(input_shape) - 1
    if name == "mlp":
        return mlp(3, flatten=sites > 0, outputs=outputs)
    if name not in PRESETS:
        raise InputError(f"There is no network called {name!r}: expected one of {', '.join(PRESETS)}.")
    if sites != 2:
        raise InputError(
            f"The network {name!r} reads images (height, width, channels), and an example has the shape "
            f"{tuple(input_shape)}. Use 'mlp', or pass images: arrays (n, height, width, channels), in an .npz "
            "file too; estimators fold flat rows with input_shape=(8, 8, 1)."
        )
    return cnn(3, outputs=outputs) if name == "cnn" else resnet(2, outputs=outputs)


def mlp(depth: int, *, flatten: bool = False, outputs: int = 1) -> Serial:
    """Dense layers and rectifiers."""
    first = [Flatten()] if flatten else []
    return Serial(*first, *[layer for _ in range(depth) for layer in (_dense(), Relu())], _dense(outputs))


def cnn(depth: int, *, pooled: bool = False, outputs: int = 1) -> Serial:
    """Convolutions of 3 x 3 and rectifiers, read by a dense layer of all places, or of their mean."""
    layers = [layer for _ in range(depth) for layer in (_conv(), Relu())]
    return Serial(*layers, GlobalAvgPool() if pooled else Flatten(), _dense(outputs))


def resnet(blocks: int, *, outputs: int = 1) -> Serial:
    """Residual blocks of two convolutions, with the mean over all places at the end."""
    block = Residual(Relu(), _conv(), Relu(), Conv((3, 3), w_std=1.0))
    return Serial(_conv(), *[block] * blocks, Relu(), GlobalAvgPool(), _dense(outputs))


def _dense(width: int | None = None) -> Dense:
    return Dense(width, w_std=_W, b_std=_B)


def _conv() -> Conv:
    return Conv((3, 3), w_std=_W, b_std=_B)
