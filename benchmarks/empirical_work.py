"""The work that `empirical.py` times: models in numbers, their parameters and data, and who computes which kernel."""

import itertools
import math
from dataclasses import dataclass, replace

SEED = 2024
MLP = (784, 1024, 1024, 1024, 10)
CHANNELS, SIDE = (3, 64, 64, 64), 16
WIDTH, HEADS, TOKENS, FEATURES, OUTPUTS = 128, 4, 32, 16, 10
WAVE, PINN = (64, 256, 256), (2, 256, 256, 256, 1)
BOUNDARY = 4  # points inside for each on the boundary

# Everybody who computes a kernel: the environment (a key of `empirical.Bench`), the script, and how it is asked.
PEERS = {
    "neural-tangents 1": ("incumbent", "empirical_incumbent.py", 1),
    "neural-tangents 2": ("incumbent", "empirical_incumbent.py", 2),
    "neural-tangents 3": ("incumbent", "empirical_incumbent.py", 3),
    "torch.func": ("project", "empirical_torch.py", "func"),
    "PyTorch hooks": ("project", "empirical_torch.py", "hooks"),
    "naive JAX": ("project", "empirical_ours.py", "naive"),
    "NetKet on the fly": ("netket", "empirical_netket.py", "on the fly"),
    "NetKet Jacobian": ("netket", "empirical_netket.py", "jacobian"),
}
FAST = ("neural-tangents 3", "PyTorch hooks")
NETKET = ("NetKet on the fly", "NetKet Jacobian", "naive JAX")
HEAVY = ("neural-tangents 1", "neural-tangents 2", "torch.func", "naive JAX")  # seconds, and gigabytes


@dataclass(frozen=True)
class Row:
    """A kernel, who else computes it, and how many times faster than each of them we want to be."""

    model: str
    n: int
    outputs: str
    peers: tuple[str, ...]
    ratio: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.model}, n={self.n}, {self.outputs}"

    def goal(self, peer: str) -> float:
        """Their time over ours, to reach."""
        return dict(self.ratio).get(peer, 1.0)

    def quick(self) -> "Row":
        """Small enough to try the script."""
        return replace(self, n=max(2, self.n // 16))

    def question(self) -> dict:
        """In plain types."""
        return {"model": self.model, "n": self.n, "outputs": self.outputs}


ROWS = (
    Row("MLP", 64, "trace", FAST + HEAVY),
    Row("MLP", 64, "full", (*FAST, "neural-tangents 2")),
    Row("MLP", 256, "trace", FAST),
    Row("MLP", 256, "full", FAST, ratio=(("neural-tangents 3", 3.0),)),
    Row("CNN", 64, "full", FAST + HEAVY),
    Row("CNN", 64, "trace", FAST),
    Row("transformer block", 32, "full", FAST + HEAVY),
    Row("transformer block", 32, "trace", FAST),
    Row("wave function", 256, "complex", NETKET, ratio=tuple((peer, 1.5) for peer in NETKET)),
    Row("PINN", 512, "terms", ("naive JAX",), ratio=(("naive JAX", 1.5),)),
)


def parameters(model: str) -> dict:
    """The same numbers for everybody, float32; weights are `(*fan_in, fan_out)`."""
    import numpy as np  # here: `empirical.py` reads this file and stays small, for its size is inherited by the workers

    rng = np.random.default_rng(SEED)
    draw = lambda *shape: (rng.standard_normal(shape) / math.sqrt(math.prod(shape[:-1]))).astype(np.float32)
    affine = lambda *shape: {"w": draw(*shape), "b": 0.1 * draw(1, shape[-1])[0]}
    if model == "MLP":
        return {"layers": [affine(a, b) for a, b in itertools.pairwise(MLP)]}
    if model == "CNN":
        layers = [affine(3, 3, a, b) for a, b in itertools.pairwise(CHANNELS)]
        return {"layers": layers, "head": affine(CHANNELS[-1], OUTPUTS)}
    if model == "PINN":
        return {"layers": [affine(a, b) for a, b in itertools.pairwise(PINN)]}
    if model == "wave function":
        drawn = [[affine(a, b) for a, b in itertools.pairwise(WAVE)] for _ in range(2)]
        both = [{name: (re[name] + 1j * im[name]) / 2 for name in re} for re, im in zip(*drawn, strict=True)]
        return {"layers": [{name: a.astype(np.complex64) for name, a in layer.items()} for layer in both]}
    d = WIDTH
    norms = {name: {"g": 1 + 0.1 * draw(1, d)[0], "b": 0.1 * draw(1, d)[0]} for name in ("norm1", "norm2", "norm3")}
    square = {name: {"w": draw(d, d)} for name in ("q", "k", "v", "o")}
    rest = {"up": affine(d, 4 * d), "down": affine(4 * d, d), "head": affine(d, OUTPUTS)}
    return {"embed": {"w": draw(FEATURES, d)}, **square, **norms, **rest}


def examples(model: str, n: int):
    """The same examples for everybody, float32."""
    import numpy as np

    shapes = {
        "MLP": (MLP[0],),
        "CNN": (SIDE, SIDE, CHANNELS[0]),
        "transformer block": (TOKENS, FEATURES),
        "wave function": (WAVE[0],),
        "PINN": (PINN[0],),
    }
    drawn = np.random.default_rng(SEED + 1).standard_normal((n, *shapes[model])).astype(np.float32)
    return np.sign(drawn) if model == "wave function" else drawn
