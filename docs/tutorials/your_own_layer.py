# %% [markdown]
# # Write your own layer
#
# One class defines the finite network and its limit. Five methods make a layer:
#
# | method | when | says |
# | --- | --- | --- |
# | `describe(signal)` | static, forward | shape and law of the output, or an `ArchitectureError` |
# | `demand(wanted)` | static, backward | which pairs of sites must be read to produce what is wanted |
# | `sample(key, signal)` | finite | the parameters |
# | `forward(params, example)` | finite | the output for one example |
# | `propagate(k, wanted)` | infinite | the second moments of the output |
#
# ## A layer
# `Roll` moves every site on a circle. Nothing is random and nothing is mixed, so a Gaussian signal stays Gaussian, and
# a pair of sites becomes another pair. In the arrays of a limit **sites lead and examples trail**: `(*sites, n1, n2)`
# where only equal sites are tracked, `(*sites, *sites, n1, n2)` where all pairs are.

# %%
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import everwide as ew


class Roll(ew.layers.AbstractLayer):
    """Move the sites of the first axis on a circle."""

    steps: int = eqx.field(static=True)

    def describe(self, signal):
        if not signal.sites:
            raise ew.ArchitectureError(f"Roll needs a site axis, got an input of shape {signal.shape}.")
        return signal  # the same shape, the same law

    def demand(self, wanted):
        return wanted  # both sites of a pair move together

    def sample(self, key, signal):
        return ()  # no parameters

    def forward(self, params, example):
        mask = None if example.mask is None else jnp.roll(example.mask, self.steps, 0)
        return replace(example, x=jnp.roll(example.x, self.steps, 0), mask=mask)

    def propagate(self, k, wanted):
        roll = lambda a: jnp.roll(a, self.steps, 0)

        def both_sites(a, pairs):
            axes = (0, k.rank) if pairs is ew.signal.Pairs.ALL_SITES else (0,)
            return jnp.roll(a, (self.steps,) * len(axes), axes)

        return k.each(lambda c: c.map(both_sites)).means(roll).masks(roll)


# %% [markdown]
# - `k.each` applies one rule to every covariance that is tracked: between two examples, and of each with itself.
# - `Covariance.map` applies a linear map of the sites to the NNGP and to the NTK alike.
# - Means and masks are moved too: a sum of branches reads the means, later layers the masks.
#
# What is legal is checked before anything is computed:

# %%
net = ew.Serial(ew.Conv((3,), padding="VALID"), ew.Relu(), Roll(1), ew.Conv((2,), strides=2), ew.Flatten(), ew.Dense(1))
print(ew.explain(net, (10, 2)))

try:
    ew.explain(ew.Serial(Roll(1), ew.Dense(1)), (10,))
except ew.ArchitectureError as error:
    print(error)

# %% [markdown]
# And what is computed is checked against finite networks. The outputs of wide random networks have the NNGP kernel as
# their covariance; with 1000 networks, its standard error is known:

# %%
x = jax.random.normal(jax.random.key(0), (3, 10, 2))


@jax.jit
@jax.vmap
def outputs(key):
    params = net.init(key, (10, 2), width=64)
    return jax.vmap(lambda one: net.apply(params, one)[0])(x)


draws = np.asarray(outputs(jax.random.split(jax.random.key(1), 1000)))
products = draws[:, :, None] * draws[:, None, :]
z = (products.mean(0) - ew.nngp(net, x)) / (products.std(0) / 1000**0.5)
assert np.abs(z).max() < 5

# %% [markdown]
# `everwide.testing.check_layer` does this for you, for the NTK too, and for every way in which pairs can be tracked.
#
# ## A container
# A layer that contains layers says so in `parts()`: which they are, and how they make its output (`"chain"`, `"sum"`,
# `"product"`, `"concat"`, `"repeat"`). Its parameters are a tuple, one entry for each part. Then everything that reads
# networks reads it too: `explain`, `net.critical()`, `everwide.optim`, linear regions. `step` runs a part at infinite
# width.


# %%
class Twice(ew.layers.AbstractLayer):
    """Two layers, one after the other."""

    first: ew.layers.AbstractLayer
    then: ew.layers.AbstractLayer

    def parts(self):
        return ew.layers.Parts((self.first, self.then), "chain")

    def describe(self, signal):
        middle = replace(self.first.describe(signal.at(0)), path=signal.path)
        return replace(self.then.describe(middle.at(1)), path=signal.path)

    def demand(self, wanted):
        return self.first.demand(self.then.demand(wanted))

    def sample(self, key, signal):
        one, two = jax.random.split(key)
        middle = replace(self.first.describe(signal.at(0)), path=signal.path)
        return self.first.sample(one, signal.at(0)), self.then.sample(two, middle.at(1))

    def forward(self, params, example):
        return self.then.forward(params[1], self.first.forward(params[0], example))

    def propagate(self, k, wanted):
        return ew.layers.step(self.then, ew.layers.step(self.first, k, self.then.demand(wanted)), wanted)


deep = ew.Serial(ew.Repeat(Twice(ew.Dense(), ew.Relu()), 10), ew.Dense(1)).critical()
print(ew.explain(deep, (3,), width=64))
assert round(deep.layers[0].layers[1].layer.first.affine.w_std ** 2, 9) == 2  # ReLU keeps variances at C_w = 2

# %% [markdown]
# ## An activation
# An activation is an elementwise function and its Gaussian moments; `AbstractActivation` makes the five methods of
# them. For `u` and `v` centred and jointly Gaussian, `dual` gives `E[f(u) f(v)]` and `E[f'(u) f'(v)]`; `moments` gives
# the mean, the second moment and the slope of one Gaussian, where `dual` might cancel.


# %%
class Square(ew.activations.AbstractActivation):
    """`x^2`: by Isserlis' theorem `E[u^2 v^2] = E[u^2] E[v^2] + 2 E[u v]^2`."""

    def __call__(self, x):
        return x * x

    def dual(self, pair):
        return ew.activations.Dual(moment=pair.var1 * pair.var2 + 2 * pair.cov**2, slope=4 * pair.cov)

    def moments(self, var):
        return ew.activations.Moments(mean=var, moment=3 * var**2, slope=4 * var)


net = ew.Serial(ew.Dense(), Square(), ew.Dense(1))
k = ew.gram(net, np.asarray(x).reshape(3, -1))
assert np.linalg.eigvalsh(k.nngp).min() > 0

# %% [markdown]
# `everwide.testing.check_activation` compares the moments with quadrature and with the derivative of your function.
#
# ## What to keep in mind
# - Write for one pair of examples and address leading axes only: everything else is vectorized already.
# - Decide in `describe` and `demand`; array code never looks at values to choose what to do.
# - A layer with random weights returns `signal.drawn(...)`: a Gaussian, independent of all that came before. A layer
#   that makes the channels anything but independent Gaussians of one law returns `signal.mixed(...)`.
# - If the output needs variances, say so: `demand` returns `wanted.with_variances()`; a layer that mixes sites needs
#   `wanted.all_sites()`.
# - `Covariance.minus` and `plus` (squared distances) are optional: set them to `None` if you cannot carry them exactly.
#   `Covariance.map` does that for you.
