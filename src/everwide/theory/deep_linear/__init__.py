"""Deep linear networks as Bayesian models, and the spectrum of random Gram matrices."""

from ._evidence import evidence_optimal_w_std as evidence_optimal_w_std
from ._evidence import posterior_scale as posterior_scale
from ._law import prior_norm as prior_norm
from ._marchenko_pastur import marchenko_pastur as marchenko_pastur
from ._posterior import posterior as posterior
