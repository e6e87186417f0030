"""Networks by name, for those who have none of their own."""

from ._checks import InputError
from .activations import Relu
from .architectures import cnn, mlp
from .layers import AbstractLayer, Conv, Dense, GlobalAvgPool, Residual, Serial

PRESETS = {  # and what they are
    "mlp": "3 hidden dense layers, Relu",
    "cnn": "3 convolutions of 3 x 3, flattened, Relu",
    "resnet": "2 residual blocks of 2 convolutions of 3 x 3, pooled, Relu",
}


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
        return mlp(outputs, flatten=sites > 0)
    if name not in PRESETS:
        raise InputError(f"There is no network called {name!r}: expected one of {', '.join(PRESETS)}.")
    if sites != 2:
        raise InputError(
            f"The network {name!r} reads images (height, width, channels), and an example has the shape "
            f"{tuple(input_shape)}. Use 'mlp', or pass images: arrays (n, height, width, channels), in an .npz "
            "file too; estimators fold flat rows with input_shape=(8, 8, 1)."
        )
    if name == "cnn":
        return cnn(outputs)
    conv = Conv((3, 3), w_std=2**0.5, b_std=0.1)
    block = Residual(Relu(), conv, Relu(), Conv((3, 3), w_std=1.0))
    return Serial(conv, block, block, Relu(), GlobalAvgPool(), Dense(outputs, w_std=2**0.5, b_std=0.1))
