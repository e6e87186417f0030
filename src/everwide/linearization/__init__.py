"""A network to first and second order in its parameters, and how far training moves it away from there."""

from ._expansion import linearize as linearize
from ._expansion import quadratic_model as quadratic_model
from ._expansion import taylor as taylor
from ._movement import forgetting_score as forgetting_score
from ._movement import influence as influence
from ._movement import kernel_distance as kernel_distance
from ._movement import label_alignment as label_alignment
from ._movement import linearization_gap as linearization_gap
from ._movement import movement as movement
