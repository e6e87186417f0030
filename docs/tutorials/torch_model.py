# %% [markdown]
# # The empirical NTK of a PyTorch model
#
# You have a trained PyTorch model. Its tangent kernel says how the model would react to a small step of training: how
# much a step on one example changes the answer for another. `empirical_ntk` computes it exactly, without the Jacobian,
# from the module as it is (`pip install 'everwide[torch]'`).

# %%
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import everwide as ew
import everwide.training as tr
from everwide.empirical import empirical_ntk_blocks
from everwide.linearization import kernel_distance, label_alignment
from everwide.spectral import gradient_flow

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
x, y = (images[order] / 16).astype(np.float32), labels[order]

torch.manual_seed(0)
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 10),
)
model.eval()

before = ew.empirical_ntk(model, None, x[:60], outputs="trace")  # (60, 60): the mean over the ten outputs
full = ew.empirical_ntk(model, None, x[:4])  # (4, 4, 10, 10): all pairs of outputs
assert np.allclose(before[:4, :4], np.einsum("ijaa->ij", full) / 10, rtol=1e-4)

# %% [markdown]
# `params` is `None`: a module carries its own. Parameters that do not require a gradient are left out. Modules whose
# answer for one example depends on the others (batch normalization in training mode) or on chance (dropout) are
# refused: call `eval()`.
#
# Believe it? Here is one entry the slow way:


# %%
def gradient(row, output):
    out = model(torch.as_tensor(x[row : row + 1]))[0, output]
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(out, list(model.parameters()))])


assert np.isclose(full[0, 1, 2, 3], float(gradient(0, 2) @ gradient(1, 3)), rtol=1e-4)

# %% [markdown]
# ## Which layer does the learning?

# %%
parts = empirical_ntk_blocks(model, None, x[:60], outputs="trace")
share = {name: float(np.trace(part) / np.trace(before)) for name, part in parts.items()}
assert np.isclose(sum(share.values()), 1, rtol=1e-4)
print(share)

# %% [markdown]
# ## Did training change the kernel?
#
# A wide network keeps its kernel while it learns; a network that learns features does not. Train, and measure how far
# the kernel went, in size and in direction, and whether it went towards the labels.

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
rows, classes = torch.as_tensor(x[:300]), torch.as_tensor(y[:300])
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(rows), classes).backward()
    optimizer.step()

after = ew.empirical_ntk(model, None, x[:60], outputs="trace")
moved = kernel_distance(before, after)
towards = label_alignment(after, np.eye(10)[y[:60]]).centred - label_alignment(before, np.eye(10)[y[:60]]).centred
assert moved.relative > 5  # twenty times as large as it was,
assert moved.cka > 0.95  # in nearly the same direction,
assert 0 < towards < 0.05  # a little nearer to the labels

# %% [markdown]
# ## Use it
#
# With the kernel of a model, everything on these pages applies to the model linearized around its parameters: training
# in closed form, uncertainty, forecasts. What would fine-tuning on 60 rows do, to any time? (The mean over outputs is
# an approximation here; the largest stable rate is `tr.max_learning_rate` of the kernel with all pairs of outputs.)

# %%
with torch.no_grad():
    outputs = model(torch.as_tensor(x[300:400])).numpy(), model(rows[:60]).numpy()
across = ew.empirical_ntk(model, None, x[300:400], x[:60], outputs="trace")
tuned = tr.Regression(after, np.eye(10)[y[:60]], f0=outputs[1]).predict(
    across, gradient_flow([0.0, 0.1]), f0=outputs[0]
)
assert np.allclose(tuned[0], outputs[0], atol=1e-5)

# %% [markdown]
# JAX functions, Equinox and Flax NNX modules go the same way: [Networks of finite width](../finite-width.md).
