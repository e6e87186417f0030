"""Cohen et al. 2021 and 2022: training by all rows sharpens until its rate is barely stable, and stays there."""

from ._run import EdgeOfStability as EdgeOfStability
from ._run import reproduce as reproduce
