"""The curvature at which an optimizer becomes unstable."""

from ..._checks import InputError, positive, share


def edge(rate: float, *, momentum: float = 0.0, b1: float = 0.0, nesterov: bool = False) -> float:
    """The curvature above which steps of an optimizer grow instead of shrinking, along that direction of the loss.

    For gradient descent `2 / rate`. Momentum that adds up gradients (heavy balls) moves it up, to
    `2 (1 + momentum) / rate`; a running mean of gradients, as Adam has it, further up, to
    `2 (1 + b1) / ((1 - b1) rate)`, which is 38 over the rate at 0.9; Nesterov's form divides both by `1 + 2 momentum`,
    or `1 + 2 b1`.

    The curvature is the largest eigenvalue of the Hessian of the mean loss. For Adam it is that of the preconditioned
    Hessian, divided from the left by the root of the second moment (with `eps`). Trained by all rows on the squared
    loss, it rises to the edge and stays there, so the edge says where a rate leads: to flatter places the larger it is.
    It does not say which rates train. With Adam, in the first steps, the curvature is far above the edge of rates that
    then do well; with cross-entropy it falls in the end; noise of small batches keeps it lower. Which rates train is
    for `theory.rates.recommended_rate`.

    Args:
        rate: the learning rate.
        momentum: as `optax.sgd` and `torch.optim.SGD` have it: gradients are added up.
        b1: as Adam has it: gradients are averaged. 0 is RMSProp. Only one of the two may be above 0.
        nesterov: whether the step looks ahead.

    Returns:
        The edge.

    >>> from everwide.theory import stability
    >>> stability.edge(0.5), round(stability.edge(0.5, momentum=0.9), 6), round(stability.edge(0.01, b1=0.9), 6)
    (4.0, 7.6, 3800.0)

    Cohen et al. 2021, Gradient descent on neural networks typically occurs at the edge of stability; Cohen et al. 2022,
    Adaptive gradient methods at the edge of stability.
    """
    summed, averaged = share(momentum, "momentum"), share(b1, "b1")
    if summed and averaged:
        raise InputError(f"momentum={momentum!r}, b1={b1!r}: expected one of them. Adam has b1, heavy balls momentum.")
    kept = summed or averaged
    limit = 2 * (1 + kept) / ((1 - averaged) * positive(rate, "rate"))
    return limit / (1 + 2 * kept) if nesterov else limit
