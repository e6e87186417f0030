# %% [markdown]
# # From neural-tangents to everwide
#
# neural-tangents is where most of this began. Its last release (0.6.5, December 2023) does not import with today's JAX;
# this page moves code that used it. The numbers stay: where both compute the same thing, everwide's test suite holds
# it to what neural-tangents returns in float64, and the three examples below print the same digits there and here.
#
# ## What is different
#
# - **A network is one object**, without widths: `net.init` and `net.apply` are the finite network, `ew.gram(net, x)`
#   its kernels. There is no triple of functions to carry about.
# - **`apply` takes one example.** `jax.vmap` makes it take a batch.
# - **Data is `(n, *sites, channels)`**, always. There is no `batch_axis`, `channel_axis` or `dimension_numbers`.
# - **Kernels are numpy arrays**, computed tile by tile: there is nothing to batch by hand. Float64 rows give float64
#   kernels, whatever the configuration of JAX.
# - **Memory and legality are known first**: `ew.explain(net, input_shape)`.
# - **Masks and graphs come with the data**: `ew.Inputs(x, mask=..., graph=...)` for `mask_constant` and `pattern`.
#
# ## Names
#
# | neural-tangents | everwide |
# | --- | --- |
# | `stax.serial(...)` | `ew.Serial(...)` |
# | `stax.Dense(512, W_std=a, b_std=b)` | `ew.Dense(w_std=a, b_std=b)`; the width comes with `init(..., width=512)` |
# | `stax.Conv(64, (3, 3), padding="SAME")` | `ew.Conv((3, 3))`: `SAME` is the default, there it is `VALID` |
# | `stax.ConvTranspose`, `ConvLocal` | `ew.layers.ConvTranspose`, `ew.layers.ConvLocal` |
# | `stax.AvgPool((2, 2), strides=(2, 2))` | `ew.AvgPool((2, 2))`: strides are the window; there they are 1 |
# | `stax.GlobalAvgPool`, `Flatten`, `LayerNorm` | the same names in `ew`; `ew.layers.RmsNorm` too |
# | `stax.Relu`, `Erf`, `Gelu`, `Sin` | the same names in `ew`; `Tanh`, `Sigmoid`, `Silu` too |
# | `stax.Rbf`, `Monomial`, `Hermite`, ... | `ew.activations.Rbf`, ...; `Elu`, `Mish`, `Softplus`, ... too |
# | `stax.ABRelu(a, b)` | `ew.activations.TwoSlope(a, b)` |
# | `stax.ElementwiseNumerical(fn, deg)` | `ew.Elementwise(fn, kinks=())`: the accuracy is found, not chosen |
# | `FanOut(2), parallel(a, b), FanInSum()` | `ew.Sum(a, b)`; with `Identity` as one of them: `ew.Residual(b)` |
# | `FanInProd`, `FanInConcat` | `ew.Product(a, b)`, `ew.Concat(a, b)` |
# | `stax.repeat(layer, n)` | `ew.Repeat(layer, n)` |
# | `stax.Dropout(rate)`: `rate` is kept | `ew.Dropout(rate)`: `rate` is dropped |
# | `stax.GlobalSelfAttention(...)` | `ew.SelfAttention(...)` |
# | `stax.Aggregate`, `pattern=` | `ew.Aggregate()`, `ew.Inputs(x, graph=...)` |
# | `stax.DotGeneral`, `ImageResize`, `Slice` | `ew.layers.SiteMap`, `ew.layers.Resize`, `ew.layers.Index` |
# | `parameterization="standard"` of each layer | `parametrization="standard", width=512` of `gram` and `init` |
# | `kernel_fn(x1, x2, "ntk")`, `"nngp"` | `ew.ntk(net, x1, x2)`, `ew.nngp(net, x1, x2)` |
# | `kernel_fn(x1, x2, ("nngp", "ntk"))` | `ew.gram(net, x1, x2)`, with `.nngp` and `.ntk` |
# | `kernel_fn` under `jit`, `grad` | `ew.Infinite(net, input_shape).block(ew.Inputs(x1), ew.Inputs(x2))` |
# | `nt.batch(kernel_fn, batch_size)` | nothing: `memory=` is a limit, tiles may be ragged |
# | `nt.predict.gradient_descent_mse` | `everwide.training.Regression` with `spectral.gradient_flow(time)` |
# | `nt.predict.gradient_descent_mse_ensemble` | `everwide.training.Ensemble` |
# | `nt.predict.gp_inference` | `everwide.training.GaussianProcess`, `Ensemble` with `spectral.ridge()` |
# | `nt.predict.gradient_descent(loss, ...)` | `everwide.training.kernel_flow`; in steps: `everwide.training.train` |
# | `nt.predict.max_learning_rate` | `everwide.training.max_learning_rate`; of an empirical kernel, of all its outputs |
# | `nt.empirical_ntk_fn(f, vmap_axes=0)` | `ew.empirical_ntk(f, params, x1, x2, outputs="trace")` |
# | `nt.empirical_ntk_fn(f, trace_axes=(), vmap_axes=0)` | `ew.empirical_ntk(f, params, x1, x2)` |
# | `nt.empirical_nngp_fn(f)` | `f(x1) @ f(x2).T`; of an everwide network: `ew.gram(ew.empirical.Finite(...), x)` |
# | `nt.empirical_ntk_vp_fn` | `everwide.empirical.ntk_operator(f, params, x)` |
# | `nt.monte_carlo_kernel_fn` | `everwide.empirical.sample_kernel`, with standard errors |
# | `nt.linearize`, `nt.taylor_expand` | `ew.linearize`, `ew.linearization.taylor`, of functions of one example |
#
# ## 1. An ensemble of trained networks
#
# There:
#
# ```python
# init_fn, apply_fn, kernel_fn = stax.serial(
#     stax.Dense(512, W_std=1.5, b_std=0.1), stax.Erf(),
#     stax.Dense(512, W_std=1.5, b_std=0.1), stax.Erf(),
#     stax.Dense(2),
# )
# predict_fn = nt.predict.gradient_descent_mse_ensemble(
#     kernel_fn, x_train, y_train, learning_rate=1.0, diag_reg=1e-3)
# mean, cov = predict_fn(t=1000.0, x_test=x_test, get='ntk', compute_cov=True)
# print(mean[0])  # [-0.28643594  0.44549048]
# ```
# Here:

# %%
import jax
import jax.numpy as jnp
import numpy as np

import everwide as ew
import everwide.training as tr
from everwide.spectral import gradient_flow

rng = np.random.default_rng(0)
x_train, x_test = rng.normal(size=(30, 5)), rng.normal(size=(4, 5))
y_train = np.stack([np.sin(x_train[:, 0]), x_train[:, 1] * x_train[:, 2]], axis=1)

hidden = ew.Dense(w_std=1.5, b_std=0.1)
net = ew.Serial(hidden, ew.Erf(), hidden, ew.Erf(), ew.Dense(2))
among, across, own = ew.gram(net, x_train), ew.gram(net, x_test, x_train), ew.gram(net, x_test)

ensemble = tr.Ensemble(among.nngp, among.ntk, y_train, ridge=1e-3 * np.diag(among.ntk).mean())
law = ensemble.predict(across.nngp, across.ntk, own.nngp, gradient_flow(1000.0 / 2))
assert np.allclose(law.mean[0], [-0.28643594, 0.44549048])
assert np.allclose(law.std[:2], [0.21100697, 0.30521463])

# %% [markdown]
# Two units differ. There, the loss is a mean over rows *and outputs*, and `t` counts steps of `learning_rate`: a time
# here is `learning_rate * t / outputs`. And `diag_reg` is in units of the mean of the diagonal, `ridge` is not in any.
# [Shapes, parametrizations and units](../shapes.md) has them all.
#
# The Gaussian process of the untrained network, `get='nngp'` at infinite time, and what was not to be had there:

# %%
process = tr.GaussianProcess(among.nngp, y_train, noise=1e-3 * np.diag(among.nngp).mean())
assert np.allclose(process.predict(across.nngp, own.nngp).mean[0], [-0.34510737, 0.60309569])
evidence = process.log_marginal_likelihood()  # for choosing between networks
residual = process.leave_one_out().residual  # every row from all others

# %% [markdown]
# ## 2. A convolutional network with a skip connection, in batches
#
# There:
#
# ```python
# block = stax.serial(stax.Relu(), stax.Conv(64, (3, 3), padding='SAME', W_std=2**0.5, b_std=0.1))
# _, _, kernel_fn = stax.serial(
#     stax.Conv(64, (3, 3), padding='SAME'),
#     stax.FanOut(2), stax.parallel(stax.Identity(), block), stax.FanInSum(),
#     stax.Relu(), stax.GlobalAvgPool(), stax.Dense(10),
# )
# kernel_fn = nt.batch(kernel_fn, batch_size=4)
# print(kernel_fn(images, None, 'ntk')[0])  # [0.43358177 0.3902026  0.37386786 ...]
# ```
# Here:

# %%
images = rng.normal(size=(8, 8, 8, 3))
block = ew.Residual(ew.Relu(), ew.Conv((3, 3), w_std=2**0.5, b_std=0.1))
resnet = ew.Serial(ew.Conv((3, 3)), block, ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
assert np.allclose(ew.ntk(resnet, images)[0, :3], [0.43358177, 0.3902026, 0.37386786])

# %% [markdown]
# A skip connection from the raw input, or around a nonlinearity, is legal too: the means of the branches are tracked.
# Branches that are not independent are refused instead of being added as if they were.
#
# ## 3. The tangent kernel of a function of your own
#
# There:
#
# ```python
# ntk_fn = jax.jit(nt.empirical_ntk_fn(f, trace_axes=(), vmap_axes=0))
# print(ntk_fn(x_test, x_train, params)[0, 0])  # [[ -8.07608874  -1.19914888] [ -1.19914888 -12.05127859]]
# f_lin = nt.linearize(f, params)
# ```
# Here:


# %%
def f(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]


params = {"w": jnp.asarray(rng.normal(size=(5, 16))), "v": jnp.asarray(rng.normal(size=(16, 2)))}
test, train = jnp.asarray(x_test), jnp.asarray(x_train)
ntk = ew.empirical_ntk(f, params, test, train)  # (4, 30, 2, 2)
assert np.allclose(ntk[0, 0], [[-8.07608874, -1.19914888], [-1.19914888, -12.05127859]], rtol=1e-5)

moved = jax.tree.map(lambda p: p + jnp.asarray(0.1, p.dtype), params)
line = ew.linearize(f, params)
assert np.allclose(line(moved, test[0]), [-11.14798916, -2.74658342], rtol=1e-5)

# %% [markdown]
# `f` reads one example here, so there is no `vmap_axes` to get wrong. There is one implementation instead of four: the
# structure of every weight is used where it is understood, and memory stays within a budget. The answer is exact.
#
# ## What everwide does not have
#
# Kernels over several devices, and functions of TensorFlow. Nested lists of inputs: concatenate, or add branches. Axis
# options, by intention.
