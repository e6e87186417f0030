"""Networks of dense layers: of rows, of nodes of graphs, along time."""

from .._checks import whole
from ..activations import AbstractActivation, Relu
from ..layers import Aggregate, Dense, Flatten, GlobalAvgPool, Index, Recurrent, Serial, Sum

W_STD, B_STD = 2**0.5, 0.1  # keep the size of a signal from one rectifier to the next


def mlp(
    outputs: int = 1,
    *,
    depth: int = 3,
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = B_STD,
    flatten: bool = False,
) -> Serial:
    """Dense layers and activations; Neal, "Bayesian learning for neural networks" (1996), Jacot et al. (2018).

    Args:
        outputs: Their number.
        depth: Hidden layers.
        activation: `None` is `Relu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.
        flatten: Examples have sites, which become channels first.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> net = ew.architectures.mlp(10, depth=2, activation=ew.Erf())
    >>> ew.ntk(net, np.eye(4)).shape
    (4, 4)
    """
    act = Relu() if activation is None else activation
    hidden = [layer for _ in range(whole(depth, "depth")) for layer in (Dense(w_std=w_std, b_std=b_std), act)]
    return Serial(*([Flatten()] if flatten else []), *hidden, Dense(outputs, w_std=w_std, b_std=b_std))


def graph_network(
    outputs: int = 1,
    *,
    depth: int = 2,
    activation: AbstractActivation | None = None,
    w_std: float = W_STD,
    b_std: float | None = B_STD,
) -> Serial:
    """Sums over the neighbours of each node, a dense layer and an activation, over and over; the mean of all nodes.

    Kipf, Welling, "Semi-supervised classification with graph convolutional networks" (2017); its tangent kernel: Du et
    al., "Graph neural tangent kernel" (2019). Graphs come with the examples, `everwide.Inputs(x, graph=...)`, already
    normalized as one likes, and with the loops that one wants.

    Args:
        outputs: Their number.
        depth: How often neighbours are summed.
        activation: `None` is `Relu()`.
        w_std: Of all weights, as in `Dense`.
        b_std: Of all biases.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> nodes, graph = np.random.default_rng(0).normal(size=(2, 5, 3)), np.tile(np.eye(5), (2, 1, 1))
    >>> ew.ntk(ew.architectures.graph_network(), ew.Inputs(nodes, graph=graph)).shape
    (2, 2)
    """
    act = Relu() if activation is None else activation
    one = (Aggregate(), Dense(w_std=w_std, b_std=b_std), act)
    return Serial(*one * whole(depth, "depth"), GlobalAvgPool(), Dense(outputs, w_std=w_std, b_std=b_std))


def recurrent_network(
    outputs: int = 1,
    *,
    depth: int = 1,
    activation: AbstractActivation | None = None,
    w_std: float = 1.0,
    u_std: float = 1.0,
    b_std: float | None = B_STD,
    both_ways: bool = False,
    pooled: bool = False,
) -> Serial:
    """Recurrent layers with weights that are tied along time, and a readout.

    Elman, "Finding structure in time" (1990); its kernels: Alemohammad et al., "The recurrent neural tangent kernel"
    (2021).

    Args:
        outputs: Their number.
        depth: Recurrent layers, each of which reads all states of the one before it.
        activation: `None` is `Relu()`.
        w_std: Of the weights that read the state.
        u_std: Of the weights that read the input.
        b_std: Of the biases.
        both_ways: Every layer is the sum of one that runs forwards and one that runs backwards.
        pooled: Read the mean over all times, not the last one. Fill sequences up on the left where the last one is
            read.

    Returns:
        The network.

    >>> import everwide as ew, numpy as np
    >>> net = ew.architectures.recurrent_network(activation=ew.Erf(), pooled=True)
    >>> ew.ntk(net, np.random.default_rng(0).normal(size=(2, 6, 3))).shape
    (2, 2)
    """
    act = Relu() if activation is None else activation

    def layer(reverse: bool) -> Recurrent:
        return Recurrent(act, w_std=w_std, u_std=u_std, b_std=b_std, reverse=reverse)

    one = Sum(layer(False), layer(True)) if both_ways else layer(False)
    end = GlobalAvgPool() if pooled else Index(-1)
    return Serial(*[one] * whole(depth, "depth"), end, Dense(outputs, b_std=b_std))
