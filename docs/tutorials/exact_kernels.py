# %% [markdown]
# # Exact kernels
#
# A random network is a random function. Make its layers wider and wider, and two things about it become simple. Before
# training, its outputs at any inputs are jointly Gaussian, and their covariance is the **NNGP** kernel. While it is
# trained by gradient descent, its function moves as kernel regression moves, with the **NTK**: the inner product of the
# gradients of the output by all parameters. Both follow from the architecture alone, exactly.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

import everwide as ew

hidden = ew.Dense(w_std=2**0.5, b_std=0.1)
net = ew.Serial(hidden, ew.Relu(), hidden, ew.Relu(), ew.Dense(10))

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
x, y = images[order] / 16, labels[order]
k = ew.gram(net, x[:300])
assert k.nngp.shape == k.ntk.shape == (300, 300)
assert np.array_equal(k.ntk, k.ntk.T)  # to the last bit

# %% [markdown]
# No width was given: `Dense()` leaves it open until a finite network is sampled. Only the outputs are counted.
#
# ## Look at a limit being reached
#
# Do not take our word for it. The same network by hand, in numpy, 400 times at width 256: the mean product of its
# outputs should be the NNGP kernel, up to a standard error that is known.

# %%
rng = np.random.default_rng(1)


def by_hand(inputs, width=256):
    for _ in range(2):
        weights = rng.normal(size=(inputs.shape[1], width)) * (2 / inputs.shape[1]) ** 0.5
        inputs = np.maximum(inputs @ weights + 0.1 * rng.normal(size=width), 0)
    return inputs @ rng.normal(size=width) / width**0.5


draws = np.stack([by_hand(x[:3]) for _ in range(400)])
products = draws[:, :, None] * draws[:, None, :]
assert np.all(np.abs(products.mean(0) - k.nngp[:3, :3]) < 4 * products.std(0) / 400**0.5)

# %% [markdown]
# `net.init(key, (64,), width=256)` and `net.apply(params, one)` are this network in JAX.
# `everwide.empirical.sample_kernel` is the mean of many of them, for the NTK too.

# %% [markdown]
# ## What an architecture believes
#
# Turn one input away from another and see how the kernel falls. Deep ReLU networks at their critical point see nearly
# all inputs as alike, except those that coincide: this is why depth alone does not make a kernel better.

# %%
angles = np.linspace(0, np.pi, 41)
circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for depth in (1, 50):
    relu = ew.Serial(ew.Repeat(ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu()), depth), ew.Dense(1))
    fall = ew.ntk(relu, circle[:1], circle)[0]
    ax.plot(np.degrees(angles), fall / fall[0], label=f"depth {depth}")
ax.set(xlabel="angle between two inputs (degrees)", ylabel="NTK / its value at 0")
ax.legend(frameon=False)
figure.savefig("exact_kernels.svg", metadata={"Date": None})
assert 0.25 < fall[20] / fall[0] < 0.35  # 90 degrees apart, 50 layers; 1/4 at any angle when there are more and more

# %% [markdown]
# ![The NTK of ReLU networks against the angle between two inputs: the deeper, the flatter](exact_kernels.svg)
#
# ## Use it
#
# A kernel matrix is a numpy array. Whatever takes a precomputed kernel takes it:

# %%
classifier = SVC(kernel="precomputed", C=10).fit(k.ntk, y[:300])
accuracy = classifier.score(ew.ntk(net, x[300:500], x[:300]), y[300:500])
assert accuracy > 0.92

# %% [markdown]
# With `everwide.training` the network itself is trained ([Training](../training.md)); `everwide.estimators` chooses
# architecture, ridge and stopping time for you ([Estimators](../estimators.md)).
#
# ## Images, and what they cost
#
# Convolutions track pairs of pixels. `explain` says which, and how much memory a tile takes, before anything runs: look
# at it first. `ew.gram(..., memory=10**9)` refuses to take more than a gigabyte.

# %%
convolutional = ew.Serial(ew.Conv((3, 3), w_std=2**0.5), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
plan = ew.explain(convolutional, (8, 8, 1))
print(plan)

# %% [markdown]
# Kernels are computed in the dtype of the data. Float32 rows are faster, and good for nearly everything:
# the diagonal, and rows that nearly coincide, do not lose digits to cancellation.
#
# ## Gradients
#
# `Infinite` is the kernel as a pure JAX function: differentiable by the data and by every number of the network.

# %%
kernel = ew.Infinite(net, (64,))
pair = ew.Inputs(jnp.asarray(x[:2], jnp.float32))
gradient = jax.jit(jax.grad(lambda kernel: kernel.block(pair, pair).ntk[0, 1]))(kernel)
assert gradient.net.layers[0].affine.w_std > 0
