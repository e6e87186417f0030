"""Fashion-MNIST with 10 000 rows and CIFAR-10 with 1 000: convolutional kernels beside an RBF SVM: `make images`."""

import argparse
from pathlib import Path

import data
import numpy as np
from contest import Lines, classification_line
from data import Split
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from table import machine, record, table

import everwide as ew
from everwide.estimators import WideClassifier, preset

SETS = {"cifar10_7k": (1000, 2000), "fashion_mnist": (10_000, 2000)}


def svm(split: Split) -> tuple[GridSearchCV, Split]:
    """With C and width chosen by three-fold cross-validation on (up to 3 000 of) the training rows."""
    flat = Split(*(part.reshape(len(part), -1) if part.ndim == 4 else part for part in split))
    grid = {"svc__C": [1, 3, 10, 30], "svc__gamma": [f / flat.x.shape[1] / flat.x.var() for f in (0.3, 1.0, 3.0)]}
    search = GridSearchCV(make_pipeline(MinMaxScaler((0, 1)), SVC(cache_size=2000)), grid, cv=3, refit=False)
    search.fit(flat.x[:3000], flat.y[:3000])
    return make_pipeline(MinMaxScaler((0, 1)), SVC(cache_size=2000)).set_params(**search.best_params_), flat


def flat(split: Split) -> tuple[WideClassifier, Split]:
    """Pixels as columns."""
    return WideClassifier(random_state=0), Split(*(p.reshape(len(p), -1) if p.ndim == 4 else p for p in split))


def auto(split: Split) -> tuple[WideClassifier, Split]:
    """Chosen on the training rows: how images are shown, and which network reads them."""
    return WideClassifier(random_state=0), split


def convolutional(split: Split) -> tuple[WideClassifier, Split]:
    """Three convolutions, flattened."""
    return WideClassifier("cnn", random_state=0), split


def pooled(split: Split) -> tuple[WideClassifier, Split]:
    """Images averaged to 8 x 8 first; three convolutions, then the mean over all places."""
    net = preset("cnn", split.x.shape[1:])
    layers = [ew.GlobalAvgPool() if isinstance(layer, ew.Flatten) else layer for layer in net.layers]
    side = split.x.shape[1] // 8
    small = lambda x: x.reshape(len(x), 8, side, 8, side, x.shape[-1]).mean((2, 4)) if x.ndim == 4 else x
    return WideClassifier(ew.Serial(*layers), random_state=0), Split(*map(small, split))


MODELS = {
    "WideClassifier": auto,
    "WideClassifier, architecture='cnn'": convolutional,
    "WideClassifier, convolutions and global pooling on 8 x 8": pooled,
    "WideClassifier, flat rows": flat,
    "RBF SVM, tuned": svm,
}
# Kernels of 10 000 images take more than ten minutes: not by default.
TOO_SLOW = {("fashion_mnist", model) for model in list(MODELS)[:3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--slow", action="store_true", help="convolutions for all 10 000 images too")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--lines", type=Path, default=Path(__file__).with_name("images.csv"))
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    chosen = parser.parse_args()
    lines = Lines(chosen.lines, ("task", "model"))
    rows = [("classifier", *(f"{name}, {SETS[name][0]} rows" for name in chosen.sets))]
    for model in chosen.models:
        shown = []
        for name in chosen.sets:
            if (name, model) in TOO_SLOW and not chosen.slow:
                shown.append("-")
                continue
            work = lambda name=name, model=model: classification_line(*MODELS[model](data.images(name, *SETS[name])))
            found = {
                key: float(value) for key, value in lines.run((name, model), work).items() if key not in lines.keys
            }
            error = "" if np.isnan(found["ece"]) else f", calibration error {found['ece']:.1f}"
            shown.append(f"{found['accuracy']:.1f} %{error}, {found['fit'] + found['predict']:.0f} s")
            print(name, model, shown[-1], flush=True)
        rows.append((model, *shown))
    text = f"{table(rows)}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("images", text)


if __name__ == "__main__":
    main()
