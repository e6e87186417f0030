"""Images in units of the training rows, with what neighbouring pixels say of each other taken out."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..spectral import Spectrum
from ._scaling import InputScaling

WINDOW = 5  # pixels along a side of the patches whose covariance is whitened
_MOST_PATCHES = 200_000
_SMALLEST = 1e-290  # below, a number is zero: its inverse would be infinite

Images = Float[np.ndarray, "n h w c"]


@dataclass(frozen=True)
class Whitening:
    """Scaled channels, then a filter over small patches: the symmetric whitening (ZCA) of a patch, at its centre.

    Pixels beside each other are nearly equal, so inner products of images see little but their large, blurred shapes.
    Whitening makes all frequencies equally loud, up to a floor below which there is noise. The filter is one for all
    places and treats mirror images alike: an image that is shifted or mirrored before is so after. Coates and Ng
    (2012), chapter 2.
    """

    plain: InputScaling
    taps: Float[np.ndarray, "window window c c"]
    factor: float

    @classmethod
    def of(cls, x: Images, weights: Float[np.ndarray, " n"], floor: float) -> "Whitening":
        """Of training rows; `floor` is added to the eigenvalues of the patches, in units of their mean."""
        plain = InputScaling.of(x, weights)
        scaled = plain(x)
        taps = _taps(_patch_covariance(scaled, weights), x.shape[-1], floor)
        size = np.average(np.mean(filtered(scaled, taps) ** 2, axis=(1, 2, 3)), weights=weights)
        return cls(plain, taps, float(1 / np.sqrt(size)) if size > _SMALLEST else 1.0)

    def __call__(self, x: Images) -> Images:
        return filtered(self.plain(x), self.taps) * self.factor


def filtered(x: Images, taps: Float[np.ndarray, "window window c c"]) -> Images:
    """Every pixel replaced by the filter around it; images go on beyond their edges as in a mirror."""
    side, (_, h, w, c) = len(taps) // 2, x.shape
    around = np.pad(x, ((0, 0), (side, side), (side, side), (0, 0)), mode="symmetric")
    out = np.zeros(x.shape)
    for i, j in np.ndindex(*taps.shape[:2]):
        out += (around[:, i : i + h, j : j + w].reshape(-1, c) @ taps[i, j]).reshape(x.shape)
    return out


def _patch_covariance(x: Images, weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, "d d"]:
    """Of patches and of their mirror images, in every direction; of some of them where there are many."""
    n, h, w, c = x.shape
    places = (h - WINDOW + 1) * (w - WINDOW + 1)
    step = math.ceil(np.sqrt(n * places / _MOST_PATCHES))
    windows = np.lib.stride_tricks.sliding_window_view(x, (WINDOW, WINDOW), axis=(1, 2))[:, ::step, ::step]
    patches = np.moveaxis(windows, 3, -1)  # n, places, places, window, window, channels
    rows = patches.reshape(-1, WINDOW * WINDOW * c)
    share = np.repeat(weights, len(rows) // n)
    cov = (rows.T * (share / share.sum())) @ rows
    grid = np.arange(cov.shape[0]).reshape(WINDOW, WINDOW, c)
    for flipped in (grid[::-1], grid[:, ::-1]):
        order = flipped.reshape(-1)
        cov = (cov + cov[np.ix_(order, order)]) / 2
    return (cov + cov.T) / 2


def _taps(cov: Float[np.ndarray, "d d"], channels: int, floor: float) -> Float[np.ndarray, "window window c c"]:
    """What the centre of a patch becomes when the patch is multiplied by `(cov + floor)^(-1/2)`."""
    spectrum = Spectrum.of(cov, what="The covariance of patches")
    raised = spectrum.values + floor * max(float(spectrum.values.mean()), _SMALLEST)
    centre = WINDOW * WINDOW // 2 * channels
    whole = (spectrum.vectors / np.sqrt(np.maximum(raised, _SMALLEST))) @ spectrum.vectors.T
    return whole[:, centre : centre + channels].reshape(WINDOW, WINDOW, channels, channels)
