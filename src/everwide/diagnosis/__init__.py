"""Curvature of training losses, and a doctor for training runs."""

from ._verdict import read_run as read_run
