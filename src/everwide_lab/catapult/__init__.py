"""Lewkowycz et al. 2020: what large learning rates do to networks: lazy, catapulted, diverged."""

from ._run import Catapult as Catapult
from ._run import reproduce as reproduce
