"""Records of a run, as writers of TensorBoard and Weights & Biases get them."""

import pytest

from everwide import InputError
from everwide.diagnosis import read_run, send
from everwide.diagnosis._writers import deliver
from report.run_logs import records, write

pytestmark = pytest.mark.once


class Board:
    """As a SummaryWriter."""

    def __init__(self):
        self.scalars, self.texts, self.flushed = [], [], 0

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.scalars.append((tag, scalar_value, global_step))

    def add_text(self, tag, text_string, global_step=None):
        self.texts.append((tag, text_string, global_step))

    def flush(self):
        self.flushed += 1


class Wandb:
    """As a run of Weights & Biases: `log` takes no step of the past."""

    def __init__(self):
        self.rows, self.metrics, self.summary = [], [], {}

    def define_metric(self, name, step_metric=None):
        self.metrics.append((name, step_metric))

    def log(self, data, step=None, commit=None):
        assert step is None
        self.rows.append((data, commit))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_run(write(tmp_path_factory.mktemp("run") / "run.jsonl", records(6)))


def test_tensorboard_gets_every_number_at_its_step(run):
    board = Board()
    assert send(run, board) == len(run.records)
    sent = {(tag, step): value for tag, value, step in board.scalars}
    assert len(sent) == len(board.scalars)
    assert sent["everwide/vitals/value", 20] == run.of("vitals")[2]["value"]
    assert sent["everwide/vitals/groups/readout/update", 50] > 0
    assert sent["everwide/curvature/groups/_hidden", 0] > 0
    assert sent["everwide/event/spike", 305] == 1
    assert sent["everwide/event/spike/before", 305] == 0.4
    assert ("everwide/noise/scale", 30) not in sent  # null
    assert not [tag for tag, _ in sent if "surprising" in tag or tag.endswith("/step")]
    assert board.texts == [("everwide/verdict", str(run.verdict()), 590)]
    assert board.flushed == 1


def test_wandb_gets_a_row_for_each_step(run):
    wandb = Wandb()
    send(run, wandb)
    steps = [data["everwide/step"] for data, _ in wandb.rows]
    assert steps == list(dict.fromkeys(record["step"] for record in run.records))
    assert {"everwide/vitals/value", "everwide/curvature/ratio"} <= set(wandb.rows[0][0])
    assert {commit for _, commit in wandb.rows} == {True}
    assert wandb.metrics == [("everwide/*", "everwide/step")]
    assert wandb.summary == {"everwide/verdict": str(run.verdict())}


def test_what_was_sent_is_not_sent_again(run):
    board = Board()
    send(run, board, start=len(run.records) - 1)
    assert {step for _, _, step in board.scalars} == {590}


def test_during_training_rows_wait_for_those_of_the_loop(run):
    wandb = Wandb()
    deliver(run.records[:2], wandb, commit=False)
    assert [commit for _, commit in wandb.rows] == [False]


def test_whatever_else_is_refused(run):
    with pytest.raises(InputError, match="writer is a list, expected a SummaryWriter"):
        send(run, [])
    with pytest.raises(InputError, match="run is a str, expected what read_run"):
        send("run.jsonl", Board())


@pytest.mark.parametrize("module", ["torch.utils.tensorboard", "tensorboardX"])
def test_real_writers_take_it(run, tmp_path, module):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writers = pytest.importorskip(module)
    with writers.SummaryWriter(str(tmp_path)) as writer:
        send(run, writer)
    stored = reader.EventAccumulator(str(tmp_path)).Reload()
    values = stored.Scalars("everwide/vitals/value")
    assert [event.step for event in values] == [record["step"] for record in run.of("vitals")]
    assert [event.value for event in values] == pytest.approx([r["value"] for r in run.of("vitals")], rel=1e-6)
