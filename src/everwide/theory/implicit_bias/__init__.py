"""Which of the solutions that fit the data gradient descent finds."""

from ._diagonal import diagonal_network as diagonal_network
from ._margin import max_margin as max_margin
from ._trajectory import margin_trajectory as margin_trajectory
