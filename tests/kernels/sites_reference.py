"""Kernels of spatial networks by matrices over all pairs of sites: numpy and `arccos`, one pair of examples."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

import everwide as ew
from everwide.activations import Abs, LeakyRelu, Relu, TwoSlope


@dataclass
class State:
    """Second moments `(sites, sites)` of two examples, each with itself and with the other, and the tangent kernel."""

    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray
    tangent: np.ndarray
    sites: tuple[int, ...]
    channels: int

    def map(self, fn):
        return replace(self, xx=fn(self.xx), xy=fn(self.xy), yy=fn(self.yy), tangent=fn(self.tangent))


def kernels(net, x, y, *, standard=False):
    """`(nngp, ntk)` of one pair of examples `(*sites, channels)`; of one with itself where `x is y`."""
    a, b = (np.asarray(v, np.float64).reshape(-1, v.shape[-1]) for v in (x, y))
    moments = [p @ q.T / a.shape[-1] for p, q in ((a, a), (a, b), (b, b))]
    state = State(*moments, np.zeros_like(moments[0]), x.shape[:-1], x.shape[-1])
    state = run(net, state, standard, x is y)
    return state.xy.item(), state.tangent.item()


def run(layer, state, standard, same):
    if isinstance(layer, ew.Serial):
        for inner in layer.layers:
            state = run(inner, state, standard, same)
        return state
    if isinstance(layer, ew.Repeat):
        return run(ew.Serial(*[layer.layer] * layer.times), state, standard, same)
    if isinstance(layer, ew.Identity):
        return state
    if isinstance(layer, ew.Conv | ew.Dense):
        return affine(layer, state, standard)
    if isinstance(layer, Abs | LeakyRelu | Relu | TwoSlope):
        return activated(layer, state, same)
    if isinstance(layer, ew.AvgPool | ew.layers.SumPool):
        found = layer.pool.geometry(layer, state.sites)
        matrix = pooling(layer.pool, found)
        return replace(state.map(lambda k: matrix @ k @ matrix.T), sites=tuple(s.out for s in found))
    if isinstance(layer, ew.layers.Mirror):
        at = np.arange(math.prod(state.sites)).reshape(state.sites)
        flipped = [at[copy].reshape(-1) for copy in layer.copies(at.ndim)]
        order = np.concatenate(flipped)
        return replace(state.map(lambda k: k[np.ix_(order, order)]), sites=(len(flipped), *state.sites))
    if isinstance(layer, ew.Flatten):
        flat = state.map(lambda k: np.mean(np.diag(k)).reshape(1, 1))
        return replace(flat, sites=(), channels=state.channels * math.prod(state.sites))
    total = np.mean if isinstance(layer, ew.GlobalAvgPool) else np.sum
    return replace(state.map(lambda k: total(k).reshape(1, 1)), sites=())


def affine(layer, state, standard):
    found = layer.geometry(state.sites) if isinstance(layer, ew.Conv) else ()
    taps = list(itertools.product(*(range(s.window) for s in found)))
    places = [shifted(found, tap) if found else np.eye(len(state.xy)) for tap in taps]
    mean = lambda k: sum(place @ k @ place.T for place in places) / len(places)
    w2, b2 = float(layer.affine.w_std) ** 2, 0.0 if layer.affine.b_std is None else layer.affine.b_std**2
    averaged = mean(state.xy)
    trained = w2 * averaged + b2
    if standard:
        trained = state.channels * len(taps) * averaged + (layer.affine.b_std is not None)
    tangent = w2 * mean(state.tangent) + (0 if layer.affine.frozen else layer.affine.speed * trained)
    out = state.map(lambda k: w2 * mean(k) + b2)
    sites = tuple(s.out for s in found) if found else state.sites
    return replace(out, tangent=tangent, sites=sites, channels=layer.width or state.channels)


def shifted(found, tap):
    """`(out, in)`: the site under one tap of the window, if it is one."""
    matrix = np.ones((1, 1))
    for slide, t in zip(found, tap, strict=True):
        along = np.zeros((slide.out, slide.size))
        for p in range(slide.out):
            site = p * slide.stride - slide.low + t * slide.dilation
            site = site % slide.size if slide.circular else site
            if 0 <= site < slide.size:
                along[p, site] = 1
        matrix = np.kron(matrix, along)
    return matrix


def pooling(pool, found):
    matrix = sum(shifted(found, tap) for tap in itertools.product(*(range(s.window) for s in found)))
    if not pool.mean:
        return matrix
    return matrix / (matrix.sum(1, keepdims=True) if pool.normalize_edges else math.prod(pool.window))


def activated(layer, state, same):
    negative, positive = (float(slope) for slope in layer.slopes())
    odd, even = (positive + negative) / 2, (positive - negative) / 2
    std = {"x": np.sqrt(np.diag(state.xx)), "y": np.sqrt(np.diag(state.yy))}

    def dual(k, left, right, exact):
        scale = np.outer(std[left], std[right])
        cosine = np.clip(np.divide(k, scale, out=np.zeros_like(k), where=scale > 0), -1, 1)
        if exact:
            np.fill_diagonal(cosine, 1)
        theta = np.arccos(cosine)
        size = scale * (2 / np.pi) * (np.sin(theta) + (np.pi / 2 - theta) * cosine)
        return odd**2 * k + even**2 * size, odd**2 + even**2 * (1 - 2 * theta / np.pi)

    xy, slope = dual(state.xy, "x", "y", same)
    xx, yy = dual(state.xx, "x", "x", True)[0], dual(state.yy, "y", "y", True)[0]
    return replace(state, xx=xx, xy=xy, yy=yy, tangent=state.tangent * slope)
