"""Static facts about a network: what flows between two layers, known before any array exists."""

import enum
from dataclasses import dataclass, replace

from ._checks import Choice, InputError, whole


class ArchitectureError(ValueError):
    """The network is not legal, or its infinite-width limit is not known.

    >>> import everwide as ew
    >>> ew.explain(ew.Relu(), (3,))
    Traceback (most recent call last):
        ...
    everwide.signal.ArchitectureError: Relu needs a Gaussian signal, but its input is not: it is the raw input, the \
output of a nonlinearity, or mixes channels of different laws. Put a Dense or Conv layer before it.
    """


class Parametrization(Choice):
    """How the size of a weight is split between its initial value and a constant factor, and how large a readout is.

    A weight acts as `factor * W x` with `W ~ N(0, std^2)`; a bias as `factor * b` with `b ~ N(0, std^2)`.

    | | hidden weights | readout weights | biases |
    | --- | --- | --- | --- |
    | `ntk` | factor `w_std / sqrt(fan_in)`, std 1 | as hidden ones | factor `b_std`, std 1 |
    | `standard` | factor 1, std `w_std / sqrt(fan_in)` | as hidden ones | factor 1, std `b_std` |
    | `mean_field` | as `ntk` | factor `w_std / fan_in`, std 1 | as `ntk` |
    | `mup` | as `standard` | factor 1, std `w_std / fan_in` | as `standard` |

    A readout is a layer with random layers before it and none after it. In `mean_field` and `mup` the output of a wide
    network starts near zero, and training moves the features of any width by as much: there is no limit with a fixed
    kernel. The learning rates that belong to each are in `everwide.optim`.

    >>> import everwide as ew
    >>> ew.Parametrization("standard")
    <Parametrization.STANDARD: 'standard'>
    """

    NTK = "ntk"
    STANDARD = "standard"
    MEAN_FIELD = "mean_field"
    MUP = "mup"

    @property
    def in_weights(self) -> bool:
        """Whether the drawn weights carry all of their size, or a constant factor does."""
        return self in (Parametrization.STANDARD, Parametrization.MUP)

    @property
    def learns_features(self) -> bool:
        """Whether features move at any width; then the kernel has no fixed limit."""
        return self in (Parametrization.MEAN_FIELD, Parametrization.MUP)


class Pairs(enum.IntEnum):
    """Which pairs of sites (pixels, tokens, nodes) a covariance covers.

    >>> import everwide as ew
    >>> kernel = ew.Infinite(ew.Conv((3,)), (8, 2), pairs=ew.signal.Pairs.SAME_SITE)
    """

    NONE = 0
    SAME_SITE = 1
    ALL_SITES = 2


@dataclass(frozen=True)
class Demand:
    """Pairs of sites that somebody will read.

    `cross` is between two different examples, `own` is of an example with itself; `data`: the inputs themselves, for a
    first layer that reads more of them than their products.

    >>> from everwide.signal import Demand, Pairs
    >>> Demand(Pairs.SAME_SITE, Pairs.NONE).all_sites().cross.name
    'ALL_SITES'
    """

    cross: Pairs
    own: Pairs
    data: bool = False

    def all_sites(self) -> "Demand":
        """What a layer must read that mixes every site into every other."""
        return Demand(Pairs.ALL_SITES, Pairs.ALL_SITES if self.own else Pairs.NONE)

    def same_site(self) -> "Demand":
        """What a layer must read whose weights are independent across sites."""
        return Demand(Pairs.SAME_SITE, Pairs.SAME_SITE if self.own else Pairs.NONE)

    def with_variances(self) -> "Demand":
        """The same, and each example's own variance at every site."""
        return Demand(self.cross, max(self.own, Pairs.SAME_SITE))

    def join(self, other: "Demand") -> "Demand":
        """What satisfies both."""
        return Demand(max(self.cross, other.cross), max(self.own, other.own), self.data or other.data)


@dataclass(frozen=True)
class Signal:
    """Static facts about the value between two layers.

    - `shape`: `(*sites, channels)`; channels are `None` where the width is left open.
    - `gaussian`: channels are independent, centred, identically distributed Gaussians.
    - `one_law`: channels have one law, whatever it is, so that the means over a part of them are those over all.
    - `centred`: over the draws of the weights, every channel has mean 0.
    - `sources`: the random layers (and the input) whose draws are still visible in single channels.
      Two signals with no source in common are independent, channel by channel.
    - `sampled`: a layer before is sampled, so that what is known of the limit is an estimate.
    - `concrete`: inside a layer that is sampled, where any law will do.
    - `path`: the place in the network; a random layer uses it as its name in `sources`.
    - `width`: the channels of layers that leave them open; `parametrization`: of the whole network.
    - `readouts`: the sources of the network's output, once a finite network is sampled; `None` at infinite width.

    >>> import everwide as ew
    >>> image = ew.signal.Signal((8, 8, 3))
    >>> ew.Conv((3, 3), strides=2).describe(image).sites
    (4, 4)
    """

    shape: tuple[int | None, ...]
    gaussian: bool = False
    sources: frozenset[tuple[int, ...]] = frozenset({(-1,)})
    path: tuple[int, ...] = ()
    width: int | None = None
    parametrization: Parametrization = Parametrization.NTK
    readouts: frozenset[tuple[int, ...]] | None = None
    one_law: bool = False
    centred: bool = False
    sampled: bool = False
    concrete: bool = False

    def __post_init__(self) -> None:
        if not self.shape:
            raise InputError("A shape () has no channels: expected (*sites, channels) of one example.")
        for size in self.shape:
            if size is not None:
                whole(size, f"In the shape {self.shape} of an input, or of what a layer gives, size")
        if self.width is not None:
            whole(self.width, "width")

    @property
    def infinite(self) -> bool:
        """Whether the network is taken to its limit, not sampled."""
        return self.readouts is None

    @property
    def is_data(self) -> bool:
        """Whether no random layer came before."""
        return self.sources == frozenset({(-1,)})

    @property
    def sites(self) -> tuple[int, ...]:
        """Sizes of the site axes."""
        return tuple(s for s in self.shape[:-1] if s is not None)

    @property
    def channels(self) -> int | None:
        """Number of channels, `None` where it is left open."""
        return self.shape[-1]

    def unlike(self, other: "Signal", *, product: bool = False) -> bool:
        """Whether it matters which channel meets which: means of products are not products of means.

        Of a sum only means are multiplied, of a product second moments.
        """
        return not any(one.one_law or (one.centred and not product) for one in (self, other))

    def reshaped(self, sites: tuple[int, ...], channels: int | None) -> "Signal":
        """The same law on other sites and channels."""
        return replace(self, shape=(*sites, channels))

    def mixed(self, sites: tuple[int, ...], channels: int | None) -> "Signal":
        """Channels that are no longer independent, identically distributed Gaussians."""
        return replace(self, shape=(*sites, channels), gaussian=False, one_law=False)

    def drawn(self, sites: tuple[int, ...], channels: int | None) -> "Signal":
        """The output of fresh random weights: Gaussian, and independent of all that came before."""
        shape = (*sites, self.width if channels is None else channels)
        return replace(self, shape=shape, gaussian=True, one_law=True, centred=True, sources=frozenset({self.path}))

    def reaches_output(self) -> bool:
        """Whether random layers at this place, or inside it, are readouts of the network."""
        return any(path[: len(self.path)] == self.path for path in self.readouts or ())

    def at(self, *step: int) -> "Signal":
        """The same value, seen from a place deeper in the network."""
        return replace(self, path=(*self.path, *step))
