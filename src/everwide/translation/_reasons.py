"""Why a layer has no known limit, and the way out: the same sentences for all frameworks."""

BATCH_NORM = (
    "it normalizes with the statistics of the batch, which has no limit here. In evaluation mode it is read as it is "
    "at initialization, x / sqrt(1 + eps); instead={{'{kind}': everwide.LayerNorm(sites=True)}} is a normalization "
    "that has a limit (without sites: LayerNorm()), everwide.Identity() leaves it out"
)
MAX_POOL = (
    "the largest of correlated Gaussians has no known law; instead={{'{kind}': everwide.AvgPool({window})}} has one"
)
ATTENTION = (
    "softmax attention whose scores are divided by the root of their width has no known limit: the scores stay random. "
    "instead={{'{kind}': everwide.SelfAttention({width})}} divides by the width, and has one"
)
TOKENS = "tokens are looked up in a table; start from their embeddings, or use everwide's own layers"
RECURRENT = "weights that are used at every step have a limit of their own, which is not read from modules"
SOFTMAX = "a softmax over the outputs is no layer of a network that has a limit; leave it to the loss"
