"""Learners of LCDB 1.1: their families, their names there and in `everwide.forecasting.extrapolate`."""

import numpy as np

FAMILIES = {  # the names of LCDB, and ours
    "network": {"MLP": "mlp", "RealMLP": "realmlp", "TabNet": "tabnet", "TabPFNv2": "tabpfn"},
    "trees": {
        "Decision Tree": "tree",
        "ExtraTree": "extra_tree",
        "ens.ExtraTrees": "extra_trees",
        "ens.RandomForest": "forest",
        "ens.GradientBoosting": "boosting",
        "CatBoost": "catboost",
    },
    "kernel": {"SVM_Poly": "svm_poly", "SVM_RBF": "svm_rbf", "SVM_Sigmoid": "svm_sigmoid"},
    "linear": {
        "SVM_Linear": "svm_linear",
        "LogisticRegression": "logistic",
        "PassiveAggressive": "passive_aggressive",
        "Perceptron": "perceptron",
        "RidgeClassifier": "ridge",
        "SGDClassifier": "sgd",
        "LDA": "lda",
        "QDA": "qda",
    },
    "neighbours": {"KNN": "knn", "NearestCentroid": "centroid"},
    "bayes": {
        "BernoulliNB": "bernoulli_nb",
        "MultinomialNB": "multinomial_nb",
        "ComplementNB": "complement_nb",
        "GaussianNB": "gaussian_nb",
    },
}
LEARNERS = tuple(name for names in FAMILIES.values() for name in names)
NAMES = tuple(ours for names in FAMILIES.values() for ours in names.values())
FAMILY = np.array([at for at, names in enumerate(FAMILIES.values()) for _ in names])
CHEAP = np.isin(NAMES, ("logistic", "knn", "gaussian_nb", "tree", "forest"))
