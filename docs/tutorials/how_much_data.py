# %% [markdown]
# # How much data do I need?
#
# Labels cost money. Label a few hundred rows, drawn at random from what the network will see: `forecast` learns this
# pilot in many random orders, sees how the error falls, and goes on from there. One factorization of one kernel matrix
# gives the errors at all sizes, so that it takes seconds.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import everwide as ew
import everwide.forecasting as fc

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
x, y = images[order] / 16, labels[order]
hidden = ew.Dense(w_std=2**0.5, b_std=0.1)
net = ew.Serial(hidden, ew.Relu(), hidden, ew.Relu(), ew.Dense(10))

found = fc.forecast(net, x[:300], y[:300], n=[300, 600, 1200])
print(found)

# %% [markdown]
# ```
#       rows      error  90% interval  accuracy
#        300    0.01308  0.01076 .. 0.01619     97.9%
#        600   0.008775  0.006933 .. 0.01123     99.0%
#       1200   0.005882  0.004334 .. 0.007927     99.5%
# Classification from 300 rows; trusted to 1773. Noise 0.000287, tail 0.0126.
# ```
# - `error` is the mean squared error on new rows, `low` and `high` its interval.
# - `noise` is the part that more rows will not remove, `tail` the part that is not learned yet. A small pilot cannot
#   tell noise from a very long tail: both are means over what is probable.
# - `trusted_to` is how far the interval stays narrow (its ends within a factor of two), and at most 20 times the pilot.
#   Beyond, a `ForecastWarning` is given: look at the interval more than at the forecast, or label more rows.
# - `accuracy` follows the error by a power law that is fitted to the pilot; `accuracy_low` and `accuracy_high` are its
#   interval.
#
# ## Was it right?
#
# These data have more rows, so we can look. The same network, with 1200 rows that are not in the pilot:

# %%
k, targets = ew.ntk(net, x[300:]), np.eye(10)[y[300:]]
mean = targets[:1200].mean(0)
dual = np.linalg.solve(k[:1200, :1200] + found.ridge * np.eye(1200), targets[:1200] - mean)
measured = np.mean((k[1200:, :1200] @ dual + mean - targets[1200:]) ** 2)
assert found.low[2] < measured < found.high[2]

figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
found.plot(ax)
ax.plot(1200, measured, "k*", label="measured")
ax.legend(frameon=False)
figure.savefig("how_much_data.svg", metadata={"Date": None})

# %% [markdown]
# ![The forecast with its interval, and the measured error inside it](how_much_data.svg)
#
# One picture is no proof. In forty pilots of 200 and 300 digits, for 600 and 1200 rows, the 90 % interval of the error
# held 78 times of 80, that of the accuracy 63 times: trust errors more than accuracies. Here 99.5 % are forecast and
# 99.3 % measured. `benchmarks/README.md` has forecasts beside measured errors, the bad ones included.
#
# ## The other way round
#
# `samples_needed` asks for a mean squared error, or an accuracy where targets are classes. With `quantile=0.9` it is
# the number of rows with which the target is reached with that probability.

# %%
assert 300 < found.samples_needed(0.99) < found.samples_needed(0.99, quantile=0.9) < 1700

# %% [markdown]
# ## Which network will be the better one with more data?
#
# All are forecast from the same pilot; `best` is the probability that one of them is ahead at the largest `n`.

# %%
first, second = fc.compare_forecasts({"linear": ew.Dense(10), "ReLU": net}, x[:300], y[:300], n=[1200])
assert (first.name, second.name) == ("ReLU", "linear")
assert first.best > 0.99

# %% [markdown]
# ## When not to trust it
#
# The forecast is for the infinitely wide network on the squared loss, with a fixed ridge. A network that learns
# features, another loss, augmentation or early stopping have curves of their own. Curves that bend after the end of the
# pilot cannot be foreseen. **Noise** is such a bend: while the error still falls, a pilot of a few hundred rows cannot
# tell a floor of noise from none. For `|x0|` in three columns with noise, and pilots of 200 rows, forecasts for 1000
# rows were too low by two fifths, most of them below the noise; the 90 % intervals, which are wide, held 33 of 40.
# Where you know the noise of your targets, no forecast below it can be right. Rows that are not drawn at
# random (the first of a sorted file, one source of several) tell about nothing but themselves.
#
# From the command line: `everwide forecast data.csv --net mlp --n 1000,5000 --accuracy 0.95`.
