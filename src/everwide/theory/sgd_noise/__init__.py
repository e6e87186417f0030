"""Training in small batches, once it has settled: how wide parameters wander, and whereto."""

from ._covariance import gradient_covariance as gradient_covariance
from ._covariance import stationary_covariance as stationary_covariance
from ._drift import entropic_drift as entropic_drift
from ._monitor import FluctuationDissipation as FluctuationDissipation
