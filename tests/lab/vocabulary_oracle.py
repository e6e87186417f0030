"""The reference vocabulary in plain numpy, written from its text: the oracle for cases that nobody has shipped.

A signal is three kernels (first batch with itself, second with itself, first with second), each `(n, m, P, P)` with the
sites in one axis. Slow, small and obvious; shares no code with the library.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

OFFSETS = {(1, 1), (2, 2), (1, 2)}


@dataclass(frozen=True)
class State:
    k: dict
    t: dict
    sites: tuple
    channels: int
    masks: dict | None = None

    def linear(self, matrix, sites):
        """Both position arguments through one matrix `(out, in)`."""
        return replace(self.each(lambda i, j, a: np.einsum("pq,nmqr,sr->nmps", matrix, a, matrix)), sites=sites)

    def each(self, f):
        """`f(i, j, array)` for both kernels between batches `i` and `j`."""
        k, t = ({(i, j): f(i, j, a) for (i, j), a in kernel.items()} for kernel in (self.k, self.t))
        return replace(self, k=k, t=t)

    def variances(self, i):
        return np.einsum("nnpp->np", self.k[i, i])

    def masked(self):
        if self.masks is None:
            return self
        return self.each(lambda i, j, a: a * self.masks[i][:, None, :, None] * self.masks[j][None, :, None, :])


def start(x1, x2, mask_constant=None):
    xs = {1: x1, 2: x1 if x2 is None else x2}
    masks = None
    if mask_constant is not None:
        masks = {i: (~(x == mask_constant).all(-1)).reshape(len(x), -1).astype(float) for i, x in xs.items()}
        xs = {i: np.where(x == mask_constant, 0.0, x) for i, x in xs.items()}
    flat = {i: x.reshape(len(x), -1, x.shape[-1]) for i, x in xs.items()}
    k = {(i, j): np.einsum("npc,mqc->nmpq", flat[i], flat[j]) / x1.shape[-1] for i, j in OFFSETS}
    return State(k, {i: np.zeros_like(a) for i, a in k.items()}, x1.shape[1:-1], x1.shape[-1], masks)


def taps(size, f, s, padding, transpose=False):
    """For each tap the 0/1 matrix `(out, in)` that it reads along one axis."""
    if transpose:
        if padding == "VALID":
            low, high = f - 1, f - 1 + max(s - f, 0)
        else:
            total = f + s - 2
            low = f - 1 if s > f - 1 else math.ceil(total / 2)
            high = total - low
        out = (size - 1) * s + 1 + low + high - f + 1
        reads = lambda p, d: (p + d - low) / s
    else:
        total = 0 if padding == "VALID" else max((math.ceil(size / s) - 1) * s + f - size, 0)
        out, low = (size + total - f) // s + 1, total // 2
        reads = lambda p, d: p * s + d - low
    result = []
    for d in range(f):
        matrix = np.zeros((out, size))
        for p in range(out):
            i = reads(p, d)
            i = i % size if padding == "CIRCULAR" else i
            if 0 <= i < size and i == int(i):
                matrix[p, int(i)] = 1
        result.append(matrix)
    return result


def kron(matrices):
    out = np.ones((1, 1))
    for m in matrices:
        out = np.kron(out, m)
    return out


def affine(state, layer, average, fan_in_taps, sites, local=False):
    w2, b = layer.get("W_std", 1.0) ** 2, layer.get("b_std")
    s0, s1 = layer.get("s", [1, 1])
    standard = layer.get("parameterization", "ntk") == "standard"
    fan_in = state.channels * fan_in_taps / s0
    k, t = {}, {}
    for i in OFFSETS:
        mean, tangent = average(state.k[i]), average(state.t[i])
        k[i] = w2 * mean + (0 if b is None else b**2)
        own = fan_in * mean + (0 if b is None else 1) if standard else k[i]
        t[i] = own + w2 * tangent
        if local:
            eye = np.eye(k[i].shape[-1])
            k[i], t[i] = k[i] * eye, t[i] * eye
    return replace(state, k=k, t=t, sites=sites, channels=layer.get("width", 1) * s1).masked()


def dense(state, layer):
    return affine(state, layer, lambda a: a, 1, state.sites)


def conv(state, layer, transpose=False, local=False):
    f, rank = layer["filter"], len(state.sites)
    strides, padding = layer.get("strides", [1] * rank), layer.get("padding", "VALID")
    axes = [taps(n, w, s, padding, transpose) for n, w, s in zip(state.sites, f, strides, strict=True)]
    matrices = [kron(c) for c in itertools.product(*axes)]
    average = lambda a: sum(np.einsum("pq,nmqr,sr->nmps", m, a, m) for m in matrices) / len(matrices)
    return affine(state, layer, average, len(matrices), tuple(len(a[0]) for a in axes), local)


def pool(state, layer, mean=True):
    rank = len(state.sites)
    strides, padding = layer.get("strides", [1] * rank), layer.get("padding", "VALID")
    sums = [sum(taps(n, w, s, padding)) for n, w, s in zip(state.sites, layer["window"], strides, strict=True)]
    if mean and layer.get("normalize_edges"):
        sums = [m / m.sum(1, keepdims=True) for m in sums]
    elif mean:
        sums = [m / w for m, w in zip(sums, layer["window"], strict=True)]
    return state.linear(kron(sums), tuple(len(m) for m in sums))


def global_pool(state, mean=True):
    size = math.prod(state.sites)
    out = state.linear(np.ones((1, size)), ())
    if not mean:
        return replace(out, masks=None)
    count = {i: np.full(state.k[i, i].shape[0], size) if state.masks is None else state.masks[i].sum(1) for i in (1, 2)}
    out = out.each(lambda i, j, a: a / count[i][:, None, None, None] / count[j][None, :, None, None])
    return replace(out, masks=None)


def flatten(state):
    size = math.prod(state.sites)
    out = state.each(lambda i, j, a: np.einsum("nmpp->nm", a)[:, :, None, None] / size)
    return replace(out, sites=(), channels=state.channels * size, masks=None)


def activation(state, dual):
    k, t = {}, {}
    for i, j in OFFSETS:
        v1, v2 = state.variances(i)[:, None, :, None], state.variances(j)[None, :, None, :]
        moment, slope = dual(v1, state.k[i, j], v2)
        k[i, j], t[i, j] = moment, state.t[i, j] * slope
    return replace(state, k=k, t=t).masked()


def relu(v1, k, v2):
    scale = np.sqrt(v1 * v2)
    c = np.clip(k / np.maximum(scale, 1e-300), -1, 1)
    theta = np.arccos(c)
    return scale / (2 * np.pi) * (np.sqrt(1 - c**2) + (np.pi - theta) * c), (np.pi - theta) / (2 * np.pi)


def erf(v1, k, v2):
    a = (1 + 2 * v1) * (1 + 2 * v2)
    return 2 / np.pi * np.arcsin(2 * k / np.sqrt(a)), 4 / np.pi / np.sqrt(a - 4 * k**2)


def exp_normalized(gamma, shift):
    def dual(v1, k, v2):
        q = np.sqrt(v1 * v2)
        e = np.exp(gamma * (k / q + shift))
        return q * e, gamma * e

    return dual


def layernorm(state, layer):
    rank, axes = len(state.sites), layer["axes"]
    over = tuple(a - 1 for a in (a % (rank + 2) for a in axes) if a != rank + 1)
    size = {}
    for i in (1, 2):
        v = state.variances(i).reshape(-1, *state.sites)
        mean = np.broadcast_to(v.mean(tuple(1 + a for a in over), keepdims=True), v.shape) if over else v
        size[i] = np.sqrt(layer["eps"] + mean.reshape(len(v), -1))
    return state.each(lambda i, j, a: a / size[i][:, None, :, None] / size[j][None, :, None, :])


def dropout(state, layer, same_batch):
    def f(i, j, a):
        if i != j and not same_batch:
            return a
        same = np.eye(a.shape[0])[:, :, None, None] * np.eye(a.shape[-1])
        return a * (1 + same * (1 / layer["rate"] - 1))

    return state.each(f)


def attention(state, layer):
    get = layer.get
    places = np.array(list(itertools.product(*(range(s) for s in state.sites))))
    distance = (np.abs(places[:, None] - places[None]) ** float(get("p_norm", 2))).sum(-1)
    decay = get("decay")
    named = {None: np.eye(len(places)), "inv1": 1 / (1 + distance), "exp_half": np.exp(-distance / 2)}
    r = np.exp(-decay * distance) if isinstance(decay, float | int) else named[decay]
    kind, c = get("pos_emb"), state.channels
    beside = get("n_chan_pos_emb") or c
    content, position = {None: (1, 0), "SUM": (1, 1), "CONCAT": (c / (c + beside), beside / (c + beside))}[kind]
    position = position * get("W_pos_emb_std", 1.0) ** 2
    embed = lambda a: content * a + position * r
    qk = get("W_query_std", 1.0) * get("W_key_std", 1.0)
    ov2, b2 = (get("W_out_std", 1.0) * get("W_value_std", 1.0)) ** 2, (get("b_std") or 0) ** 2

    def weigh(scores):
        if layer["mechanism"] == "SOFTMAX":
            e = np.exp(scores - scores.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)
        return {"IDENTITY": lambda s: s, "ABS": np.abs, "RELU": lambda s: np.maximum(s, 0)}[layer["mechanism"]](scores)

    g = {i: weigh(qk * embed(np.einsum("nnpq->npq", state.k[i, i]))) for i in (1, 2)}
    k, t = {}, {}
    for i, j in OFFSETS:
        value, tangent = state.k[i, j], state.t[i, j]
        if not get("linear_scaling", True):
            assert (layer["mechanism"], kind) == ("IDENTITY", None)
            d, e = (np.sum(value * a, (2, 3), keepdims=True) for a in (value, tangent))
            k[i, j] = qk**2 * ov2 * d * value + b2
            t[i, j] = qk**2 * ov2 * (2 * e * value + d * (tangent + 4 * value)) + b2
            continue
        if kind is not None and get("val_pos_emb"):
            value, tangent = embed(value), embed(tangent)
        mix = lambda a, i=i, j=j: ov2 * np.einsum("npq,nmqr,msr->nmps", g[i], a, g[j])
        k[i, j] = mix(value) + b2
        t[i, j] = mix(tangent) + b2 + 2 * mix(value)
    return replace(state, k=k, t=t)


def on_axis(state, axis, matrix):
    """A matrix along one site axis."""
    blocks = [np.eye(s) for s in state.sites]
    blocks[axis] = np.atleast_2d(matrix)
    sites = list(state.sites)
    if np.ndim(matrix) == 1:
        del sites[axis]
    else:
        sites[axis] = len(matrix)
    return state.linear(kron(blocks), tuple(sites))


def index(state, layer):
    items = [i if isinstance(i, int) else slice(*i) for i in layer["idx"][1 : len(state.sites) + 1]]
    kept = np.arange(math.prod(state.sites)).reshape(state.sites)[tuple(items)]
    return state.linear(np.eye(math.prod(state.sites))[kept.ravel()], kept.shape)


def resize(state, layer, matrices):
    for axis, matrix in matrices.items():
        state = on_axis(state, axis, matrix)
    return state


def aggregate(state, layer, patterns):
    axes = [a - 1 for a in layer["axes"]]
    nodes = [state.sites[a] for a in axes]
    places = list(itertools.product(*(range(s) for s in state.sites)))

    def full(pattern):
        out = np.zeros((len(pattern), len(places), len(places)))
        flat = pattern.reshape(len(pattern), math.prod(nodes), math.prod(nodes))
        for a, q in enumerate(places):
            for b, p in enumerate(places):
                if all(q[x] == p[x] for x in range(len(q)) if x not in axes):
                    i, j = (np.ravel_multi_index([v[x] for x in axes], nodes) for v in (q, p))
                    out[:, b, a] = flat[:, i, j]
        return out

    matrix = {1: full(patterns[0]), 2: full(patterns[1])}
    return state.each(lambda i, j, a: np.einsum("npq,nmqr,msr->nmps", matrix[i], a, matrix[j]))


def merge(states, how):
    first = states[0]
    add = lambda name, w: {i: sum(s * getattr(x, name)[i] for s, x in zip(w, states, strict=True)) for i in OFFSETS}
    if how == "prod":
        k, t = first.k, first.t
        for s in states[1:]:
            k, t = {i: k[i] * s.k[i] for i in k}, {i: t[i] * s.k[i] + k[i] * s.t[i] for i in k}
        return replace(first, k=k, t=t)
    widths = [s.channels for s in states]
    share = [1.0] * len(states) if how == "sum" else [w / sum(widths) for w in widths]
    return replace(first, k=add("k", share), t=add("t", share), channels=sum(widths) if how == "concat" else widths[0])


def run(layers, state, context):
    for layer in layers:
        state = _layer(layer, state, context)
    return state


def _layer(layer, state, context):
    kind = layer["type"]
    if kind == "branches":
        return merge([run(b, state, context) for b in layer["branches"]], layer["merge"])
    if kind == "scale":
        return state.linear(layer["c"] * np.eye(math.prod(state.sites)), state.sites)
    rules = {
        "dense": lambda: dense(state, layer),
        "conv": lambda: conv(state, layer),
        "conv_local": lambda: conv(state, layer, local=True),
        "conv_transpose": lambda: conv(state, layer, transpose=True),
        "relu": lambda: activation(state, relu),
        "erf": lambda: activation(state, erf),
        "exp_normalized": lambda: activation(state, exp_normalized(layer["gamma"], layer["shift"])),
        "layernorm": lambda: layernorm(state, layer),
        "dropout": lambda: dropout(state, layer, context["same"]),
        "avg_pool": lambda: pool(state, layer),
        "sum_pool": lambda: pool(state, layer, mean=False),
        "global_avg_pool": lambda: global_pool(state),
        "global_sum_pool": lambda: global_pool(state, mean=False),
        "flatten": lambda: flatten(state),
        "attention": lambda: attention(state, layer),
        "aggregate": lambda: aggregate(state, layer, context["patterns"]),
        "image_resize": lambda: resize(state, layer, context["matrices"]),
        "index": lambda: index(state, layer),
        "dot_general_rhs": lambda: on_axis(state, layer["axis"] - 1, np.asarray(layer["rhs"]).T),
    }
    return rules[kind]()


def kernels(layers, x1, x2=None, *, mask_constant=None, patterns=None, matrices=None):
    """NNGP and NTK of a list of layers, in the layout of the reference arrays."""
    same = x2 is None or (x1.shape == x2.shape and np.abs(x1 - x2).max() <= 1e-12)
    state = run(layers, start(x1, x2, mask_constant), {"same": same, "patterns": patterns, "matrices": matrices})

    def layout(a):
        rank = len(state.sites)
        a = a.reshape(*a.shape[:2], *state.sites, *state.sites)
        return a.transpose(0, 1, *(x for p in range(rank) for x in (2 + p, 2 + rank + p)))

    return layout(state.k[1, 2]), layout(state.t[1, 2])
