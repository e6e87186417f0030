"""curvlinops and PyHessian on the same models: runs in its own environment, asked by `curvature.py`."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from curvature_work import LENGTH, PAIRS, PRODUCTS, SAMPLES, in_a_row, labels
from curvlinops import HessianLinearOperator, hutchpp_trace
from empirical_torch import module_of
from empirical_work import examples
from protocol import peak_bytes, serve, timed, versions
from pyhessian import hessian
from pyhessian.utils import hessian_vector_product
from scipy.sparse.linalg import eigsh

warnings.filterwarnings("ignore")


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], Any] = lambda: None

    def prepare(self, question: dict) -> dict:
        """Run once, untimed, and give numbers that do not depend on the order of parameters."""
        module, n = module_of(question["model"]), question["n"]
        x, y = torch.tensor(examples(question["model"], n)), torch.tensor(labels(n))
        x = x.permute(0, 3, 1, 2).contiguous() if question["model"] == "CNN" else x
        side = PyHessian if question["how"] == "PyHessian" else Curvlinops
        theirs = side(module, x, y)
        self.run = theirs.work(question["work"])
        return {"numbers": theirs.numbers(question["work"], self.run())}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


class Curvlinops:
    """Products by autograd at each call; eigenvalues by ARPACK; the trace by Hutch++; a density by Lanczos."""

    def __init__(self, module: Any, x: Any, y: Any):
        self.module, self.data = module, [(x, y)]
        self.params = list(module.parameters())
        self.theta = torch.nn.utils.parameters_to_vector(self.params).detach()

    def operator(self) -> Any:
        """A new one, as a user makes it."""
        loss = torch.nn.CrossEntropyLoss()
        return HessianLinearOperator(self.module, loss, self.params, self.data, check_deterministic=False)

    def work(self, name: str) -> Callable[[], Any]:
        """What is timed."""
        ready = self.operator()
        return {
            "20 products": lambda: in_a_row(lambda: ready @ self.theta),
            "top 10": lambda: eigsh(
                self.operator().to_scipy(), k=PAIRS, which="LM", tol=1e-4, return_eigenvectors=False
            ),
            "trace": lambda: hutchpp_trace(self.operator(), num_matvecs=PRODUCTS),
            "density": self.density,
        }[name]

    def density(self) -> np.ndarray:
        """The tridiagonal matrices of as many Lanczos runs (their function for densities smooths them in addition)."""
        from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum

        return lanczos_approximate_spectrum(self.operator(), LENGTH, num_repeats=SAMPLES, boundaries=(-20.0, 20.0))[1]

    def numbers(self, name: str, result: Any) -> list[float]:
        """To be compared."""
        if name == "20 products":
            return [float(self.theta @ result), float(torch.linalg.norm(result))]
        if name == "top 10":
            return [float(value) for value in sorted(result, key=lambda v: -abs(v))]
        return [float(result)] if name == "trace" else []


class PyHessian(Curvlinops):
    """The graph is kept; eigenvalues by power iterations, one after the other; the trace by plain averages."""

    def operator(self) -> Any:
        (x, y) = self.data[0]
        self.module.zero_grad()
        return hessian(self.module, torch.nn.CrossEntropyLoss(), data=(x, y), cuda=False)

    def work(self, name: str) -> Callable[[], Any]:
        ready = self.operator()
        theta = [p.detach().clone() for p in ready.params]
        return {
            "20 products": lambda: in_a_row(lambda: hessian_vector_product(ready.gradsH, ready.params, theta)),
            "top 10": lambda: self.operator().eigenvalues(maxIter=200, tol=1e-4, top_n=PAIRS)[0],
            "trace": lambda: self.operator().trace(maxIter=PRODUCTS, tol=0.0),
            "density": lambda: self.operator().density(iter=LENGTH, n_v=SAMPLES),
        }[name]

    def numbers(self, name: str, result: Any) -> list[float]:
        if name == "20 products":
            flat = torch.cat([part.detach().reshape(-1) for part in result])
            return [float(self.theta @ flat), float(torch.linalg.norm(flat))]
        if name == "top 10":
            return [float(value) for value in sorted(result, key=lambda v: -abs(v))]
        return [float(np.mean(result))] if name == "trace" else []


if __name__ == "__main__":
    session = Session()
    packages = ("torch", "curvlinops-for-pytorch", "PyHessian", "numpy", "scipy")
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(packages)})
