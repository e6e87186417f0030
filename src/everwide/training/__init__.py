"""Training infinitely wide networks, without weights: any time, any loss, gradient flow to ADAM*."""

from ._data import minibatches as minibatches
from ._evidence import fit_evidence as fit_evidence
from ._evidence import log_marginal_likelihood as log_marginal_likelihood
from ._flow import kernel_flow as kernel_flow
from ._kernels import FeatureKernel as FeatureKernel
from ._kernels import FunctionKernel as FunctionKernel
from ._kernels import OperatorKernel as OperatorKernel
from ._layer import KernelLayer as KernelLayer
from ._losses import BinaryCrossEntropy as BinaryCrossEntropy
from ._losses import Hinge as Hinge
from ._losses import Huber as Huber
from ._losses import Mse as Mse
from ._losses import Poisson as Poisson
from ._losses import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from ._machine import KernelMachine as KernelMachine
from ._optimizers import SGD as SGD
from ._optimizers import AdamStar as AdamStar
from ._process import Ensemble as Ensemble
from ._process import GaussianProcess as GaussianProcess
from ._regression import Regression as Regression
from ._reweight import reweight_for_feature_update as reweight_for_feature_update
from ._train import train as train
from ._units import DivergenceWarning as DivergenceWarning
from ._units import from_finite as from_finite
from ._units import max_learning_rate as max_learning_rate
from ._units import to_finite as to_finite
