"""Mohamadi, Bae, Sutherland 2022: look-ahead active learning with the tangent kernel of a trained network."""

from ._run import LookAhead2022 as LookAhead2022
from ._run import reproduce as reproduce
