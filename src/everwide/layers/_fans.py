"""Where weights stand in a network: all that a parametrization asks of them."""

import math
from dataclasses import dataclass

from ..signal import Parametrization, Signal


@dataclass(frozen=True)
class Fans:
    """What a weight connects: how much it reads and feeds, and whether that is data and output, or hidden channels.

    - `fan_in`: numbers that are summed for one output; `fan_out`: channels that read one input.
    - `reads_hidden`: random layers came before. `feeds_hidden`: random layers come after.
    """

    parametrization: Parametrization
    fan_in: int
    fan_out: int
    reads_hidden: bool
    feeds_hidden: bool

    @property
    def is_readout(self) -> bool:
        """Whether hidden channels become the output here."""
        return self.reads_hidden and not self.feeds_hidden

    @property
    def size(self) -> float:
        """The size of a weight: its factor times its initial standard deviation, for `w_std = 1`."""
        if self.is_readout and self.parametrization.learns_features:
            return 1 / self.fan_in
        return 1 / math.sqrt(self.fan_in)


def fans_of(signal: Signal, fan_in: int, fan_out: int) -> Fans:
    """The place of weights that read `signal` and are the last ones of their layer."""
    return Fans(signal.parametrization, fan_in, fan_out, not signal.is_data, not signal.reaches_output())
