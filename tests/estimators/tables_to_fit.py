"""Small tables, all with four columns and few numbers of rows, so that little is compiled; and a small network."""

import numpy as np

import everwide as ew

RNG = np.random.default_rng
NET = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1, w_std=2**0.5, b_std=0.1))
TRAIN, TEST = slice(0, 48), slice(48, 96)


def inputs(n=96, seed=0):
    return RNG(seed).normal(size=(n, 4)) * np.array([1.0, 30.0, 0.01, 1.0]) + np.array([0.0, 100.0, 0.0, -5.0])


def standard(x):
    return (x - np.array([0.0, 100.0, 0.0, -5.0])) / np.array([1.0, 30.0, 0.01, 1.0])


X = inputs()
Z = standard(X)
Y = 1000 + 50 * (np.sin(Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.1 * RNG(5).normal(size=96))
LABELS = np.array(["left", "middle", "right"])[np.digitize(Z[:, 0] + 0.3 * Z[:, 1], [-0.5, 0.5])]
