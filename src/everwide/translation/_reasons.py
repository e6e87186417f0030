"""Why a layer has no known limit, and the way out: the same sentences for all frameworks."""

BATCH_NORM = (
    "it normalizes with the statistics of the batch: the kernel of two examples would depend on all others of the "
    "batch, and here it is computed from the two alone. In evaluation mode it is read as it is at initialization, "
    "x / sqrt(1 + eps); instead={{'{kind}': everwide.LayerNorm(sites=True)}} is a normalization that has a limit "
    "(without sites: LayerNorm()), everwide.Identity() leaves it out, and everwide.empirical_ntk has the kernel of the "
    "module as it is"
)
MAX_POOL = (
    "the largest of correlated Gaussians has no known law; instead={{'{kind}': everwide.AvgPool({window})}} has one"
)
INSTANCE_NORM = "statistics of single channels over few sites stay random; everwide.LayerNorm(sites=True) has a limit"
GATES = "states behind gates have no known law along time"
ATTENTION = (
    "softmax attention whose scores are divided by the root of their width has no known limit: the scores stay random. "
    "instead={{'{kind}': everwide.SelfAttention({width})}} divides by the width, and has one"
)
MIXES = "weights over places, the same for all channels, stay random, and are drawn as the module draws them"
TOKENS = "it looks up numbers that are not the input of the module; only tokens that come in are read"
RECURRENT = "weights that are used at every step have a limit of their own, which is not read from this layer"
SOFTMAX = "a softmax over the outputs is no layer of a network that has a limit; leave it to the loss"
RAW = "it is a function of the raw input, before any weights: do it to the data, and leave it out here"
NOT_GAUSSIAN = "the law of what it reads is not known in closed form"
INSIDE = "in one part with what is sampled"
UNREAD = "{kind} is not known here; instead={{'{kind}': layer}} puts a layer of everwide in its place"
FILLER = "the vector of token {filler} is zero there, and one like all others here: mask the sites that hold it"
OTHERS = "attention to another signal, and masks, are not read: queries, keys and values must be one signal"
SEVERAL = (
    "it takes more than one argument, and layers of one signal are read; in place of a bilinear map, a product of "
    "linear ones is: nn.Linear(...)(x) * nn.Linear(...)(y)"
)
ROUNDS = "it rounds a signal to whole numbers, or to truth values, which have no gradient"
OWN_CALL = (
    "a {kind} has a __call__ of its own, beside that of its framework, and only the latter is read: write what it does "
    "into a module around the layer, or put a layer of everwide in its place, instead={{'{kind}': layer}}"
)
STOPS = (
    "it stops gradients, as if layers before it were frozen. In PyTorch, requires_grad_(False) of these is read; "
    "instead={place: everwide.Dense(width, w_std=..., b_std=..., frozen=True)} says it of any"
)
MODE = "A {kind} is called with {option}={given}, and the layer itself has {option}={own}. Set it for the layer: {how}."
DROPPED_SCORES = "dropout of attention, in training mode, is not read; module.eval() leaves it out"
