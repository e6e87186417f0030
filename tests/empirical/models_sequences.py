"""More small models: sequences, control flow, and things that are not parameters. They join the zoo."""

import jax
import jax.numpy as jnp
from jax import lax

from empirical.models_zoo import ZOO as ZOO
from empirical.models_zoo import model, norm, rows, tokens, w

# --- sequences


_RNN = {"wx": w(3, 4), "wh": w(4, 4), "b": w(4), "wo": w(4, 2)}
_SEQUENCES = rows(3, 3)


@model(_RNN, _SEQUENCES)
def rnn_unrolled(p, x):
    h = jnp.zeros(4)
    for row in x:
        h = jnp.tanh(row @ p["wx"] + h @ p["wh"] + p["b"])
    return h @ p["wo"]


@model(_RNN, _SEQUENCES)
def rnn(p, x):
    step = lambda h, row: (jnp.tanh(row @ p["wx"] + h @ p["wh"] + p["b"]), None)
    return lax.scan(step, jnp.zeros(4), x)[0] @ p["wo"]


@model(_RNN | {"h": w(4)}, _SEQUENCES, plain="h")
def rnn_with_a_learned_start(p, x):
    step = lambda h, row: (jnp.tanh(row @ p["wx"] + h @ p["wh"]) * row[0], h)
    h, before = lax.scan(step, p["h"], x, reverse=True, unroll=3)
    return (h + before.sum(0)) @ p["wo"] + p["b"][:2]


@model({"w": w(3, 5, 5), "b": w(3, 5), "shared": w(5), "o": w(5, 2)}, rows(5), plain="shared")
def scanned_layers(p, x):
    layer = lambda h, row: (jnp.tanh(h @ row[0] + row[1] + p["shared"]), None)
    return lax.scan(layer, x, (p["w"], p["b"]))[0] @ p["o"]


@model({"l": {"wx": w(2, 4, 4), "wh": w(2, 4, 4), "b": w(2, 4)}, "wo": w(4, 2)}, rows(3, 4))
def scanned_rnns(p, x):
    def layer(sequence, q):
        step = lambda h, row: (jnp.tanh(row @ q["wx"] + h @ q["wh"] + q["b"]),) * 2
        return lax.scan(step, jnp.zeros(4), sequence)[1], None

    return lax.scan(layer, x, p["l"])[0][-1] @ p["wo"]


def block(h, q):
    z = norm(h, q["g"], q["b"])
    a = jax.nn.softmax((z @ q["q"]) @ (z @ q["k"]).T, -1)
    return h + a @ (z @ q["v"]) + jax.nn.gelu(z @ q["m1"] + q["c"]) @ q["m2"]


def block_params(*layers: int):
    shapes = {"g": (4,), "b": (4,), "q": (4, 4), "k": (4, 4), "v": (4, 4), "m1": (4, 6), "c": (6,), "m2": (6, 4)}
    return {name: w(*layers, *shape) for name, shape in shapes.items()}


@model({"E": w(7, 4), "pos": w(9, 4), "l": block_params(2)}, tokens(7, 5), plain="E pos ['l']['g'] ['l']['b']")
def scanned_transformer_with_tied_embedding(p, x):
    layer = jax.checkpoint(lambda h, q: (block(h, q), None))
    return lax.scan(layer, p["E"][x] + p["pos"][: x.shape[0]], p["l"])[0].mean(0) @ p["E"].T


@model({"E": w(9, 4), "F": w(5, 4), "l": block_params(), "o": w(4, 2)}, tokens(5, 3), plain="['l']['g'] ['l']['b']")
def transformer(p, x):
    h = p["E"][x] * 4**0.5 + p["F"].at[x + 2].get(mode="fill", fill_value=0.0)
    return block(h, p["l"])[0] @ p["o"]


_HEADS = {"wq": w(2, 8, 4), "wk": w(2, 8, 4), "wv": w(2, 8, 4), "wo": w(2, 4, 8)}


@model({"emb": w(3, 8), "g": w(8), "be": w(8), **_HEADS, "head": w(8, 3)}, rows(3, 3), plain="g be")
def attention_with_heads(p, x):
    h = norm(x @ p["emb"], p["g"], p["be"])
    q, k, v = (jnp.einsum("td,hdk->htk", h, p[name]) for name in ("wq", "wk", "wv"))
    a = jax.nn.softmax(jnp.einsum("htk,hsk->hts", q, k) / 2, -1)
    o = jnp.einsum("htk,hkd->td", jnp.einsum("hts,hsk->htk", a, v), p["wo"])
    return (h + o).mean(0) @ p["head"]


# --- control flow, and things that are not parameters


@model({"w1": w(5, 4), "w2": w(4, 3)}, rows(5))
@jax.checkpoint
def remat(p, x):
    return jnp.tanh(x @ p["w1"]) @ p["w2"]


@model({"w": w(5, 5), "v": w(5, 5), "o": w(5, 2)}, rows(5), plain="w v")
def branches(p, x):
    y = lax.cond(x[0] > 0, lambda: jnp.tanh(x @ p["w"]), lambda: x @ p["v"])
    return lax.switch((x[1] > 0).astype(int), [jnp.sin, jnp.cos], y) @ p["o"]


@model({"w": w(5, 5), "o": w(5, 2)}, rows(5))
def loops(p, x):
    y = lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ p["w"]), x)
    count = lax.while_loop(lambda i: i < 3, lambda i: i + 1, jnp.round(jnp.abs(x[0])).astype(int))
    return y @ p["o"] * count.astype(y.dtype)


@model({"w": w(5, 3), "frozen": w(3, 3), "dead": w(2, 2), "empty": w(0)}, rows(5))
def unused(p, x):
    return jnp.tanh(x @ p["w"]) @ lax.stop_gradient(p["frozen"])


@model({"w": w(5, 3), "index": jnp.asarray([2, 0, 1]), "mask": jnp.asarray([True, False, True])}, rows(5))
def with_integers(p, x):
    return jnp.where(p["mask"], (x @ p["w"])[p["index"]], 0.0)


@model({"w": w(5, 3), "b": w(3), "c": w(3)}, rows(5), plain="b c")
def parameters_as_outputs(p, x):
    return jnp.concatenate([p["b"], x @ p["w"], jnp.sort(p["c"])])


@model({"w": w(3, 4), "v": w(2, 4), "o": w(4, 2)}, {"a": rows(3), "b": (rows(2), tokens(3))})
def tree_of_inputs(p, x):
    return jnp.tanh(x["a"] @ p["w"] + x["b"][0] @ p["v"]) @ p["o"] * x["b"][1].astype(float)
