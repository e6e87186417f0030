"""A line of `scale.py` by GPyTorch, in an environment of its own (.bench-scale): as `scale_work.py`."""

import time
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from data import Split
from gpytorch import settings
from scale_work import DATA, Learned, answer, asked, ridge_of
from torch.utils.data import DataLoader, TensorDataset

TOLERANCE, PIVOTS = 1e-3, 500  # of conjugate gradients, as ours; pivots of their preconditioner
INDUCING, EPOCHS, BATCH, RATE = 500, 5, 256, 0.01


def gradients(split: Split, ridge: float) -> Learned:
    """The exact posterior mean for a Laplacian as wide as rows are long, with a given ridge."""
    x, y, new = (torch.as_tensor(np.asarray(part, np.float32)) for part in (split.x, split.y, split.x_test))
    kernel = gpytorch.kernels.MaternKernel(nu=0.5)
    kernel.lengthscale = float(np.sqrt(split.x.shape[1]))
    with (
        torch.no_grad(),
        settings.max_cholesky_size(1),
        settings.cg_tolerance(TOLERANCE),
        settings.max_cg_iterations(1000),
        settings.max_preconditioner_size(PIVOTS),
        settings.min_preconditioning_size(1),
    ):
        system = kernel(x).evaluate_kernel().add_diagonal(torch.tensor(ridge))
        coefficients = system.solve(y)
        rest = (system @ coefficients - y).norm(dim=0) / y.norm(dim=0)
        predicted = torch.cat([kernel(some, x).to_dense() @ coefficients for some in new.split(1000)])
    return Learned(predicted.numpy(), residual=float(rest.max()))


class Sparse(gpytorch.models.ApproximateGP):
    """A process for each output, with inducing rows that are learned."""

    def __init__(self, rows: torch.Tensor, outputs: int):
        shape = torch.Size([outputs])
        law = gpytorch.variational.CholeskyVariationalDistribution(len(rows), batch_shape=shape)
        one = gpytorch.variational.VariationalStrategy(self, rows, law, learn_inducing_locations=True)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(one, num_tasks=outputs))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        inner = gpytorch.kernels.MaternKernel(nu=0.5, batch_shape=shape)
        inner.lengthscale = float(np.sqrt(rows.shape[1]))
        self.covar_module = gpytorch.kernels.ScaleKernel(inner, batch_shape=shape)

    def forward(self, x: torch.Tensor) -> Any:
        """The prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def variational(split: Split, ridge: float) -> Learned:
    """SVGP as its documentation has it: Adam on the bound, some epochs of small batches."""
    torch.manual_seed(0)
    x, y, new = (torch.as_tensor(np.asarray(part, np.float32)) for part in (split.x, split.y, split.x_test))
    model, likelihood = (
        Sparse(x[:INDUCING].clone(), y.shape[1]),
        gpytorch.likelihoods.MultitaskGaussianLikelihood(y.shape[1]),
    )
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)
    steps = 0
    for _ in range(EPOCHS):
        for some, targets in DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True):
            optimizer.zero_grad()
            (-bound(model(some), targets)).backward()
            optimizer.step()
            steps += 1
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(some).mean for some in new.split(1000)])
    return Learned(predicted.numpy(), iterations=steps)


LEARNERS: dict[str, Callable[[Split, float], Learned]] = {
    "GPyTorch, conjugate gradients": gradients,
    "GPyTorch, SVGP": variational,
}


def main() -> None:
    """Learn and tell."""
    args = asked(LEARNERS)
    split, began = DATA[args.data](args.n), time.perf_counter()
    learned = LEARNERS[args.learner](split, ridge_of(args.data))
    print(answer(learned, split, time.perf_counter() - began))


if __name__ == "__main__":
    main()
