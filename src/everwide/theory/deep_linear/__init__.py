"""Deep linear networks as Bayesian models, and the spectrum of random Gram matrices."""

from ._depth import effective_depth as effective_depth
from ._depth import evidence_by_depth as evidence_by_depth
from ._depth import evidence_optimal_variance as evidence_optimal_variance
from ._depth import posterior_scale as posterior_scale
from ._evidence import deep_linear_log_evidence as deep_linear_log_evidence
from ._law import ScaleLaw as ScaleLaw
from ._law import deep_linear_prior_norm as deep_linear_prior_norm
from ._marchenko_pastur import MarchenkoPastur as MarchenkoPastur
from ._marchenko_pastur import Outliers as Outliers
from ._marchenko_pastur import marchenko_pastur as marchenko_pastur
from ._posterior import DeepLinearPosterior as DeepLinearPosterior
from ._posterior import PosteriorPrediction as PosteriorPrediction
from ._posterior import deep_linear_posterior as deep_linear_posterior
