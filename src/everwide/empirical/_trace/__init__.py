"""A JAX function becomes the factors of its Jacobian: traced, walked, and tapped where parameters meet data."""

from ._tangents import JaxTangents as JaxTangents
from ._tangents import Plan as Plan
from ._tangents import paired as paired
from ._tangents import traced as traced
from ._walk import alike as alike
