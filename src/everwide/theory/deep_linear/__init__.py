"""Deep linear networks as Bayesian models, and the spectrum of random Gram matrices."""

from ._depth import effective_depth as effective_depth
from ._depth import evidence_by_depth as evidence_by_depth
from ._depth import evidence_optimal_variance as evidence_optimal_variance
from ._depth import posterior_scale as posterior_scale
from ._evidence import log_evidence as log_evidence
from ._law import prior_norm as prior_norm
from ._marchenko_pastur import marchenko_pastur as marchenko_pastur
from ._posterior import posterior as posterior
