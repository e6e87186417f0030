"""Networks of tokens and patches."""

from collections.abc import Sequence

from .._checks import InputError, whole
from ..activations import AbstractActivation, Gelu
from ..layers import (
    AbstractLayer,
    Conv,
    ConvLocal,
    Dense,
    Embedding,
    Gated,
    GlobalAvgPool,
    Identity,
    Index,
    LayerNorm,
    PositionEmbedding,
    Residual,
    SelfAttention,
    Serial,
    Sum,
)
from ._dense import B_STD


def vit(
    outputs: int = 10,
    *,
    patch: Sequence[int] = (4, 4),
    depth: int = 6,
    activation: AbstractActivation | None = None,
    w_std: float = 1.0,
    b_std: float | None = B_STD,
    positions: float = 1.0,
) -> Serial:
    """A vision transformer; Dosovitskiy et al., "An image is worth 16 x 16 words" (2021).

    Patches become tokens, positions are added, and blocks of attention and of two dense layers follow, each behind a
    normalization. Attention has infinitely many heads and scores of `1 / d`, with which they do not fluctuate (Hron et
    al., "Infinite attention", 2020). The readout sees the mean of all tokens.

    Args:
        outputs: Their number.
        patch: Size of a patch, for each site axis.
        depth: Blocks.
        activation: `None` is `Gelu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.
        positions: Standard deviation of the embeddings of positions.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.architectures.vit(depth=1), np.ones((2, 8, 8, 3))).shape
    (2, 2)
    """
    embedded = Conv(patch, strides=patch, padding="VALID", w_std=w_std, b_std=b_std)
    placed = Sum(Identity(), PositionEmbedding(w_std=positions))
    blocks = _blocks(depth, activation, w_std, b_std, causal=False, gated=False)
    return Serial(embedded, placed, *blocks, LayerNorm(), GlobalAvgPool(), Dense(outputs, b_std=b_std))


def gpt(
    vocabulary: int,
    outputs: int | None = None,
    *,
    length: int | None = None,
    depth: int = 6,
    activation: AbstractActivation | None = None,
    w_std: float = 1.0,
    b_std: float | None = B_STD,
    positions: float = 1.0,
    gated: bool = False,
    everywhere: bool = False,
) -> Serial:
    """A decoder of tokens; Radford et al., "Language models are unsupervised multitask learners" (2019).

    Tokens and positions are embedded, a token sees those before it, and normalization stands before each branch.
    Attention as in `vit`. Inputs are tokens `(n, length, 1)`; sequences of different lengths have masks, and are
    filled up on the left where the last token is read.

    Args:
        vocabulary: How many tokens there are.
        outputs: Their number; `None` is one for each token.
        length: The most tokens for which there are positions; `None` is any number.
        depth: Blocks.
        activation: `None` is `Gelu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.
        positions: Standard deviation of the embeddings of positions.
        gated: Dense layers are gated (Shazeer, "GLU variants improve transformer", 2020).
        everywhere: Read all tokens, not the last one; then kernels are over pairs of tokens.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.architectures.gpt(50, depth=1), np.array([[3, 5, 8], [5, 3, 8]])[..., None]).shape
    (2, 2)
    """
    first = Sum(Embedding(vocabulary), PositionEmbedding(length=length, w_std=positions))
    blocks = _blocks(depth, activation, w_std, b_std, causal=True, gated=gated)
    end = () if everywhere else (Index(-1),)
    return Serial(first, *blocks, LayerNorm(), *end, Dense(vocabulary if outputs is None else outputs))


def _blocks(
    depth: int,
    activation: AbstractActivation | None,
    w_std: float,
    b_std: float | None,
    *,
    causal: bool,
    gated: bool,
) -> list[AbstractLayer]:
    act = Gelu() if activation is None else activation
    attend = SelfAttention(w_value_std=w_std, w_out_std=w_std, b_std=b_std, causal=causal)
    hidden = (Gated(act, w_std=w_std, b_std=b_std),) if gated else (Dense(w_std=w_std, b_std=b_std), act)
    feed = Residual(LayerNorm(), *hidden, Dense(w_std=w_std, b_std=b_std))
    return [Residual(LayerNorm(), attend), feed] * whole(depth, "depth")


def mlp_mixer(
    outputs: int = 10,
    *,
    image: Sequence[int] = (32, 32),
    patch: Sequence[int] = (4, 4),
    depth: int = 4,
    activation: AbstractActivation | None = None,
    w_std: float = 1.0,
    b_std: float | None = B_STD,
) -> Serial:
    """Blocks that mix patches, and blocks that mix channels; Tolstikhin et al., "MLP-Mixer" (2021).

    One change: weights that mix patches read all channels, too. Shared by all channels, as in the paper, they would be
    as many as there are patches, whatever the width, and the kernel would depend on their draw.

    Args:
        outputs: Their number.
        image: Sides of the images.
        patch: Sides of the patches, which divide them.
        depth: Blocks of each kind.
        activation: `None` is `Gelu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.architectures.mlp_mixer(image=(8, 8), depth=1), np.ones((2, 8, 8, 3))).shape
    (2, 2)
    """
    if len(image) != len(patch) or any(side % part for side, part in zip(image, patch, strict=True)):
        raise InputError(f"patch={tuple(patch)!r} does not divide image={tuple(image)!r}.")
    act = Gelu() if activation is None else activation
    tokens = [side // part for side, part in zip(image, patch, strict=True)]
    mix = ConvLocal(tokens, padding="CIRCULAR", w_std=w_std, b_std=b_std)
    dense = Dense(w_std=w_std, b_std=b_std)
    blocks = [Residual(LayerNorm(), one, act, one) for one in (mix, dense)] * whole(depth, "depth")
    first = Conv(patch, strides=patch, padding="VALID", w_std=w_std, b_std=b_std)
    return Serial(first, *blocks, LayerNorm(), GlobalAvgPool(), Dense(outputs, b_std=b_std))
