"""Has training in batches settled? Fluctuation and dissipation are equal then."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..._checks import InputError, finite_array, positive, share, whole

_WINDOWS = 3  # in succession, that must agree


class Window(NamedTuple):
    """Means over the steps of a window: what the gradient pulls parameters back, and what noise pushes them out."""

    dissipation: float
    fluctuation: float

    @property
    def ratio(self) -> float:
        """1 where training is stationary; 0 where gradients vanish."""
        return self.dissipation / self.fluctuation if self.fluctuation > 0 else 0.0


class FluctuationDissipation(eqx.Module):
    """Tells whether training by gradient descent in batches is stationary: nothing more is learned at that rate.

    Then the products of parameters and gradients are, on average, `rate (1 + momentum) / 2` times the squares of the
    steps per rate, whatever the loss and the noise are. Both cost one product a step. While norms of the parameters
    still grow or shrink, they differ, by far at first. They are averaged over windows; where three in succession agree,
    training at that rate is done, and a lower one is due. Short windows, a fraction of the time in which parameters
    forget where they were, agree by chance; what is stationary may still be far from the best.

    Args:
        rate: the learning rate. With another one, begin anew.
        momentum: of heavy balls.
        window: steps that are averaged.
        tolerance: by which the ratio of both may differ from 1.

    `update(products, squares)` returns the monitor after one step or many; `windows` has `dissipation`, `fluctuation`
    and `ratio` of each that is complete; `stationary` says whether the last three ratios are near 1.

    >>> import numpy as np
    >>> from everwide.theory import sgd_noise
    >>> rng, monitor, w = np.random.default_rng(0), sgd_noise.FluctuationDissipation(0.2, window=1000), 5.0
    >>> for step in range(4000):
    ...     gradient = w + rng.normal()  # of w^2 / 2, with noise
    ...     monitor = monitor.update(w * gradient, gradient**2)
    ...     w = w - 0.2 * gradient
    >>> [round(window.ratio, 1) for window in monitor.windows], monitor.stationary
    ([1.6, 1.0, 1.0, 1.0], True)

    Yaida 2018, Fluctuation-dissipation relations for stochastic gradient descent.
    """

    rate: float
    momentum: float = 0.0
    window: int = 1000
    tolerance: float = 0.1
    windows: tuple[Window, ...] = ()
    recent: tuple[float, float, int] = (0.0, 0.0, 0)

    def __check_init__(self):
        positive(self.rate, "rate")
        share(self.momentum, "momentum")
        whole(self.window, "window")
        positive(self.tolerance, "tolerance")

    def update(self, products: Any, squares: Any) -> "FluctuationDissipation":
        """After a step, or several in their order.

        Args:
            products: of parameters and gradient of the batch, before the step, summed over all parameters.
            squares: the squared length of the gradient; with momentum, of the step over the rate.

        Returns:
            The monitor with them.
        """
        pulls, pushes = (np.atleast_1d(finite_array(v, n)) for v, n in ((products, "products"), (squares, "squares")))
        if pulls.shape != pushes.shape or pulls.ndim != 1 or (pushes < 0).any():
            raise InputError(
                f"products of shape {pulls.shape}, squares of shape {pushes.shape}: expected one number of each for "
                "every step, squares at least 0."
            )
        windows, (pull, push, count) = list(self.windows), self.recent
        factor, place = self.rate * (1 + self.momentum) / 2, 0
        while place < len(pulls):
            end = min(len(pulls), place + self.window - count)
            pull, push = pull + float(pulls[place:end].sum()), push + float(pushes[place:end].sum())
            count, place = count + end - place, end
            if count == self.window:
                windows.append(Window(pull / count, factor * push / count))
                pull, push, count = 0.0, 0.0, 0
        state = self.rate, self.momentum, self.window, self.tolerance, tuple(windows), (pull, push, count)
        return FluctuationDissipation(*state)

    @property
    def stationary(self) -> bool:
        """Whether the last three windows agree; False until there are so many."""
        last = self.windows[-_WINDOWS:]
        return len(last) == _WINDOWS and all(abs(window.ratio - 1) <= self.tolerance for window in last)
