"""Networks for images, and how images are shown to them: what `architecture="auto"` compares."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .._gram import nngp, ntk
from .._kernels import Infinite, seconds
from ..activations import Relu
from ..architectures import cnn, mlp
from ..layers import AbstractLayer, AvgPool, Conv, Dense, Flatten, Mirror, Serial
from ..spectral import solve
from ._scaling import InputScaling
from ._whitening import Whitening

_DEPTHS = (2, 4, 7)  # of convolutions without pools
_FLOORS = (1.0, 0.1, 0.01)  # of whitening, in units of the mean eigenvalue of patches
_SMALLEST = 8  # pixels along a side, below which nothing is pooled
_HALVED = 16  # from which the first convolution leaves out every second place
_SECONDS, _SHARE = 300.0, 0.5  # that the kernel of all rows may take; of a budget, if there is one
_SURE = 5000  # rows, up to which convolutions without pools are always compared; of more, a dense network may be left
_ENOUGH, _MOST = 200, 500  # rows by which ways of showing images are compared; fewer tell luck from merit badly
_RIDGES = 10.0 ** np.arange(-6, 0.01, 0.5)
_W, _B = 2**0.5, 0.1  # keeps the size of a signal from layer to layer

Images = Float[np.ndarray, "n h w c"]
ImageScaling = InputScaling | Whitening


class ImageNetwork(NamedTuple):
    """A network, in words what it is, and how many hidden layers it has."""

    network: AbstractLayer
    description: str
    depth: int


def image_networks(shape: tuple[int, ...], rows: int, budget: float | None = None) -> Iterator[ImageNetwork]:
    """For images of this shape, those whose kernel of so many training rows takes minutes at the most.

    Args:
        shape: `(h, w, c)` of one image.
        rows: that will be learned from.
        budget: seconds for all.
    """
    most = _SECONDS if budget is None else _SHARE * budget
    for depth in _DEPTHS:
        network = cnn(depth=depth)
        if rows <= _SURE or seconds(Infinite(network, shape), rows**2 / 2) < most:
            yield ImageNetwork(network, f"{depth} convolutions of 3 x 3, flattened, Relu", depth)
    yield ImageNetwork(mlp(flatten=True), "dense network, 3 hidden layers, Relu", 3)
    if min(shape[:2]) < _SMALLEST:
        return
    for mirrored in (False, True):
        candidate = pooled(shape, mirrored=mirrored)
        if seconds(Infinite(candidate.network, shape), rows**2 / 2) < most:
            yield candidate


def pooled(shape: tuple[int, ...], *, mirrored: bool) -> ImageNetwork:
    """Convolutions with means over 2 x 2 places between them, for images `(h, w, c)` of at least 8 x 8.

    What the last layer reads keeps its place: only pairs of places that are near each other are ever looked at.

    Args:
        shape: of one image.
        mirrored: an image and its mirror image are the same to the network.
    """
    copy = (1,) if mirrored else ()
    halved = min(shape[:2]) >= _HALVED
    side, stride = (4, 2) if halved else (3, 1)
    layers: list[AbstractLayer] = [Mirror(1)] if mirrored else []
    layers += [Conv((*copy, side, side), w_std=_W, b_std=_B, strides=(*copy, stride, stride)), Relu()]
    sites, depth = [-(-size // stride) for size in shape[:2]], 1
    while depth < 3 and all(size % 2 == 0 and size > 2 for size in sites):
        layers += [AvgPool((*copy, 2, 2)), Conv((*copy, 3, 3), w_std=_W, b_std=_B), Relu()]
        sites, depth = [size // 2 for size in sites], depth + 1
    layers += [AvgPool((2, 1, 1)), Flatten()] if mirrored else [Flatten()]
    words = f"{depth} convolutions{', the first at every second place,' * halved} with means over 2 x 2 places between "
    words += f"them, flattened, Relu{', mirror images alike' * mirrored}"
    return ImageNetwork(Serial(*layers, Dense(1, w_std=_W, b_std=_B)), words, depth)


def image_scaling(
    x: Images, y: Float[np.ndarray, "n k"], copies: Float[np.ndarray, " n"], which: Literal["nngp", "ntk"], seed: int
) -> ImageScaling:
    """Scaled, or whitened more or less: by what a pooled network predicts of each row from all others."""
    plain = InputScaling.of(x, copies)
    if min(x.shape[1:3]) < _SMALLEST or copies.sum() < _ENOUGH:
        return plain
    rows = np.random.default_rng(seed).permutation(len(x))[:_MOST]
    net = pooled(x.shape[1:], mirrored=False).network
    best, least = plain, math.inf
    for scaling in (plain, *(Whitening.of(x, copies, floor) for floor in _FLOORS)):
        shown = scaling(x[rows]).astype(np.float32)
        error = _left_out_error((ntk if which == "ntk" else nngp)(net, shown), y[rows], copies[rows])
        if error < least:
            best, least = scaling, error
    return best


def _left_out_error(kernel: np.ndarray, y: Float[np.ndarray, "n k"], copies: Float[np.ndarray, " n"]) -> float:
    """The least mean square over all ridges."""
    kernel = np.asarray(kernel, np.float64)
    base = solve(kernel / np.diagonal(kernel).mean(), y, weights=copies, copies=copies, solver="eigen")
    left_out = (base.at(float(ridge), np.inf).left_out() for ridge in _RIDGES)
    return min(float(np.average(np.sum((y - one) ** 2, axis=1), weights=copies)) for one in left_out)
