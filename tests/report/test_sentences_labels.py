"""Sentences on rows without a target: each is said of a table of which it is true, and not of another."""

from dataclasses import replace

import numpy as np
import pytest

from everwide._problem import prepare
from everwide.report._sections import labels
from report.report_tables import hostile_table, number_table, small_net
from report.sentences import check

pytestmark = pytest.mark.once


def with_unlabelled(table, x):
    """The same table, with rows that have no target behind the others."""
    rows = np.arange(table.n, table.n + len(x))
    return replace(table, unlabelled=replace(table, x=x, y=None, rows=rows, unlabelled=None))


def made(table, x):
    problem = prepare(with_unlabelled(table, x), small_net(), quick=True)
    return problem, labels.labels(problem)


def test_every_sentence_is_true_once_and_once_it_is_not_said():
    rng, table = np.random.default_rng(5), number_table()
    like, far = rng.normal(size=(60, 2)), 9 + rng.normal(size=(60, 2))
    problem, twins = made(table, np.concatenate([like[:20], table.x[:3], like[:2]]))
    cases = [made(table, like), made(table, far), (problem, twins), made(table, table.x[:3])]
    cases += [(problem, replace(twins, n_looked_at=10)), made(hostile_table(), rng.normal(size=(30, 3)))]
    none = prepare(table, small_net(), quick=True)
    texts = check(labels, [*cases, (none, labels.labels(none))])
    assert "unlike the labelled ones" in texts[1]
    assert "unlike the labelled ones" not in texts[0]
    assert "near-duplicates of labelled rows: their" in texts[3]
    assert "Every row has a target" in texts[-1]


def test_rows_are_those_of_the_file():
    _, result = made(number_table(), np.random.default_rng(6).normal(size=(40, 2)))
    assert len(result.rows) == len(set(result.rows.tolist())) == 8
    assert result.rows.min() > 90  # rows are counted from 1, and the first 90 have targets
    assert all(result.why)
    assert result.method == "lcmd"


def test_one_in_twenty_is_far_where_rows_are_of_one_kind():
    """Rows with and without a target are drawn alike: the share is that of chance."""
    rng, table = np.random.default_rng(7), number_table(300)
    shares = [made(table, rng.normal(size=(300, 2)))[1] for _ in range(3)]
    assert 0.01 < np.mean([one.share_far for one in shares]) < 0.12
    assert not any(one.of_another_kind for one in shares)
