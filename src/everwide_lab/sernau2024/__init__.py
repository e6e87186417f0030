"""Sernau et al. 2024: transformers whose MLP blocks are trained, or frozen but for their read-outs."""

from ._arms import Arm as Arm
from ._arms import Rates as Rates
from ._arms import Rest as Rest
from ._run import Sernau2024 as Sernau2024
from ._run import reproduce as reproduce
from ._setting import Setting as Setting
