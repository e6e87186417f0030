# %% [markdown]
# # Training with ADAM\*
#
# Gradient descent on squares has a closed form. Classifiers are trained otherwise: on cross-entropy, in batches, with
# ADAM. An infinitely wide network can be trained so too. Its function is `f(x) = f0(x) + K(x, X) a`, its parameters,
# gradients and momenta are functions of that form, and **ADAM\*** is ADAM in that space: the second moment, which ADAM
# keeps for every weight, is averaged over the width, so that one number is left for each output (Sernau 2024).

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import everwide as ew
import everwide.training as tr
from everwide.theory import rates

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
x, y = images[order] / 16, labels[order]
hidden = ew.Dense(w_std=2**0.5, b_std=0.1)
net = ew.Serial(hidden, ew.Relu(), hidden, ew.Relu(), ew.Dense(10))
among, across = ew.ntk(net, x[:300]), ew.ntk(net, x[300:500], x[:300])

# %% [markdown]
# ## How fast?
#
# `stable_rates` knows the largest rates that are safe for an infinitely wide network, from the kernel alone. Below that
# of gradient descent the loss falls; below that of ADAM\* the first step does not overshoot. Both are for all rows at
# once.

# %%
rates = rates.stable_rates(among, y=np.eye(10)[y[:300]], loss=tr.SoftmaxCrossEntropy())

# %% [markdown]
# ## Run
#
# Losses and optimizers are values. `record` is how often the loss is written down; a whole run is one compiled loop.

# %%
batches = tr.minibatches(jax.random.key(0), n=300, batch_size=50, passes=60)
runs = {}
for name, optimizer in {"SGD": tr.SGD(rates.gradient_descent / 2), "ADAM*": tr.AdamStar(rates.adam_star / 2)}.items():
    runs[name] = tr.train(
        among, y[:300], loss=tr.SoftmaxCrossEntropy(), optimizer=optimizer, batches=batches, record=10
    )

accuracy = {name: (run.predict(across).argmax(1) == y[300:500]).mean() for name, run in runs.items()}
assert min(accuracy.values()) > 0.9

figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, run in runs.items():
    ax.semilogy(run.history.steps, run.history.loss, label=name)
ax.set(xlabel="steps", ylabel="cross-entropy of the training rows")
ax.legend(frameon=False)
figure.savefig("training_with_adam_star.svg", metadata={"Date": None})

# %% [markdown]
# ![Training loss against steps, for SGD and ADAM*](training_with_adam_star.svg)
#
# Losses: `Mse`, `SoftmaxCrossEntropy`, `BinaryCrossEntropy`, `Hinge`, `Huber`, `Poisson`, or any JAX function of
# the outputs and the target of one row. `rate` may be an optax schedule. The kernel may be a matrix as here, features
# (`FeatureKernel`), a function that is evaluated as needed (`FunctionKernel`), or known by its products only
# (`OperatorKernel`): the numbers are the same. A run that diverges stops at its last finite step, and says which.
#
# ## It hovers
#
# ADAM\* divides the gradient by its own size. At a constant rate its steps stay long while gradients shrink, and it
# does not come to rest: where the step has become the largest stable one, it stays. `hovers_at` is the size of the
# gradient there. It is proportional to the rate, so decay the rate to go on.

# %%
assert np.isclose(rates.hovers_at(0.01), rates.hovers_at(0.1) / 10)

# %% [markdown]
# ## The same optimizer for a network with weights
#
# `everwide.optim.adam_star` is ADAM\* for optax; `to_finite` says which rate and `eps` take `width` features along the
# same path as the limit.

# %%
finite = tr.to_finite(tr.AdamStar(0.1), width=1024)
assert np.isclose(finite.rate, 0.1 / 1024**0.5)

# %% [markdown]
# Rows that come in a stream: `KernelMachine`, in [Training](../training.md).
#
# Does it matter which optimizer trains a read-out? `everwide reproduce sernau2024` trains transformers to see; what we
# found, and what did not hold, is in the [gallery](../gallery.md).
