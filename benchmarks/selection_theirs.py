"""LCMD with sketched tangent kernels as bmdal_reg has it: runs in its own environment, asked by `selection.py`."""

import time

import numpy as np
import torch
from bmdal_reg.bmdal.algorithms import select_batch
from bmdal_reg.bmdal.feature_data import TensorFeatureData
from protocol import serve, versions
from torch import nn

SKETCHED = 512  # features, as the paper recommends


def network(file: dict[str, np.ndarray]) -> nn.Sequential:
    """The same weights, in layers that the package knows."""
    layers: list[nn.Module] = []
    count = sum(key.startswith("weight") for key in file)
    for place in range(count):
        weight, bias = (torch.tensor(file[f"{what}{place}"]) for what in ("weight", "bias"))
        layer = nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.T.contiguous(), bias
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lcmd(question: dict) -> dict:
    """Rows of the pool, how long it took, and outputs of some rows, by which both networks are compared."""
    with np.load(question["path"]) as found:
        file = {key: found[key] for key in found.files}
    model, (known, pool, y) = network(file), (torch.tensor(file[key]) for key in ("known", "pool", "y"))
    torch.manual_seed(question["seed"])
    start = time.perf_counter()
    picked, _ = select_batch(
        batch_size=question["size"],
        models=[model],
        data={"train": TensorFeatureData(known), "pool": TensorFeatureData(pool)},
        y_train=y,
        base_kernel="grad",
        kernel_transforms=[("rp", [SKETCHED])],
        selection_method="lcmd",
        sel_with_train=True,
    )
    seconds = time.perf_counter() - start
    with torch.no_grad():
        outputs = model(pool[:3]).reshape(-1).tolist()
    return {"picked": [int(row) for row in picked], "seconds": seconds, "outputs": outputs}


if __name__ == "__main__":
    serve({"lcmd": lcmd, "versions": lambda _: versions(("bmdal_reg", "torch", "numpy"))})
