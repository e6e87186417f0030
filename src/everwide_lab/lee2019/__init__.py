"""Lee et al. 2019: networks of growing width beside their linearizations and their limit."""

from ._run import Lee2019 as Lee2019
from ._run import reproduce as reproduce
