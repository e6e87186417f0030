"""A doctor for what people have: Equinox, Flax NNX and PyTorch modules."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide.diagnosis as dg
from everwide import InputError
from everwide.diagnosis._patient_torch import TorchPatient
from everwide.diagnosis._patients import _is_smooth, labels_of
from everwide.training import Mse, SoftmaxCrossEntropy

LOSS = SoftmaxCrossEntropy()
X = np.random.default_rng(0).normal(size=(32, 5)).astype(np.float32)
Y = np.argmax(X[:, :3], 1)


@pytest.fixture(autouse=True)
def at_every_second_step(monkeypatch):
    monkeypatch.setattr(dg.Doctor, "_affordable", lambda self: True)
    monkeypatch.setattr(dg.Doctor, "_spaced", lambda self: 0)


class TestEquinox:
    def test_a_module_is_watched(self):
        module = eqx.nn.MLP(5, 3, 8, 1, key=jax.random.key(0))
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        arrays, static = eqx.partition(module, eqx.is_inexact_array)
        optimizer = optax.sgd(0.1, momentum=0.9)
        state = optimizer.init(arrays)
        for _ in range(6):
            values = lambda p: jnp.mean(jax.vmap(LOSS)(jax.vmap(eqx.combine(p, static))(X.astype(arrays_dtype(p))), Y))
            with jax.numpy_dtype_promotion("standard"):
                change, state = optimizer.update(jax.grad(values)(arrays), state)
                arrays = eqx.apply_updates(arrays, change)
            watcher(eqx.combine(arrays, static), state)
        vitals = watcher.run.of("vitals")[-1]
        np.testing.assert_allclose(vitals["rate"], 0.1, rtol=1e-3)
        assert list(vitals["groups"]) == ["layers.0", "layers.1"]
        # units are rows of an Equinox weight: fan-in is the number of columns
        first = eqx.combine(arrays, static).layers[0].weight
        assert vitals["groups"]["layers.0"]["gain"] == pytest.approx(float(jnp.sqrt(jnp.mean(first**2) * 5)), rel=0.2)

    def test_dropout_is_off(self):
        module = eqx.nn.Sequential([eqx.nn.Linear(5, 3, key=jax.random.key(0)), eqx.nn.Dropout(0.5)])
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        watcher(module)
        watcher(module)
        assert "evaluation mode" in str(watcher.verdict())


def arrays_dtype(tree):
    return jax.tree.leaves(tree)[0].dtype


@pytest.mark.parametrize(
    ("function", "smooth"),
    [
        *((f, True) for f in (jnp.tanh, jax.nn.softmax, jax.nn.log_softmax, jax.nn.softplus, jax.nn.gelu, jax.nn.mish)),
        *((f, False) for f in (jax.nn.relu, jax.nn.leaky_relu, jnp.abs, jax.nn.hard_swish)),
        (lambda x: jax.nn.softplus(x) + jnp.maximum(x, 0), False),
        (lambda x: jax.nn.softplus(jax.nn.softplus(x)), True),  # whose program is written down once
        (lambda x: jax.nn.softplus(jnp.maximum(jax.nn.softplus(x), 1)), False),
    ],
)
def test_kinks_are_those_of_the_function_not_of_how_it_is_computed(function, smooth):
    model = SimpleNamespace(f=lambda w, x: function(w * x), params=jnp.ones(3))
    assert _is_smooth(model, jnp.ones(3)) == smooth


@pytest.mark.parametrize("targets", [[0, 300], [1, -100]], ids=["counts", "one_left_out"])
def test_whole_numbers_that_are_no_classes(targets):
    assert labels_of(np.array(targets), 2) is None


class TestFlax:
    nnx = pytest.importorskip("flax.nnx")

    def module(self, *layers):
        return self.nnx.Sequential(
            self.nnx.Linear(5, 8, rngs=self.nnx.Rngs(0)), *layers, self.nnx.Linear(8, 3, rngs=self.nnx.Rngs(1))
        )

    def test_a_module_is_watched(self):
        module = self.module(self.nnx.relu)
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        for _ in range(4):
            watcher(module)
            state = jax.tree.map(lambda p: p * jnp.asarray(0.99, p.dtype), self.nnx.state(module, self.nnx.Param))
            self.nnx.update(module, state)
        vitals = watcher.run.of("vitals")[-1]
        assert len(vitals["groups"]) == 2
        assert vitals["update"] == pytest.approx(0.01 * vitals["weights"], rel=1e-2)

    def test_batch_statistics_are_refused(self):
        module = self.module(self.nnx.BatchNorm(8, rngs=self.nnx.Rngs(0)))
        with pytest.raises(InputError, match="BatchNorm"):
            dg.Doctor(module, LOSS, probe=(X, Y))(module)


class TestTorch:
    torch = pytest.importorskip("torch")

    def module(self, *layers):
        self.torch.manual_seed(0)
        return self.torch.nn.Sequential(
            self.torch.nn.Linear(5, 8), *layers, self.torch.nn.Tanh(), self.torch.nn.Linear(8, 3)
        )

    def train(self, watcher, module, optimizer, steps=8):
        x, y = self.torch.as_tensor(X), self.torch.as_tensor(Y)
        for _ in range(steps):
            optimizer.zero_grad()
            value = self.torch.nn.functional.cross_entropy(module(x), y)
            value.backward()
            optimizer.step()
            watcher(module, optimizer, value=value)

    @pytest.mark.parametrize(
        ("name", "smooth"), [("relu", False), ("leaky_relu", False), ("gelu", True), ("softplus", True), ("elu", True)]
    )
    def test_kinks_are_found_in_what_is_called(self, name, smooth):
        function = getattr(self.torch.nn.functional, name)

        class Called(self.torch.nn.Linear):
            def forward(self, x):
                return function(super().forward(x))

        assert TorchPatient.is_smooth(Called(5, 3), X) == smooth

    @pytest.mark.parametrize("name", ["PReLU", "RReLU", "Softshrink"])
    def test_and_in_layers_however_pytorch_writes_them(self, name):
        assert not TorchPatient.is_smooth(self.module(getattr(self.torch.nn, name)()), X)

    def test_curvature_is_that_of_a_brute_hessian(self):
        module = self.module()
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        self.train(watcher, module, self.torch.optim.SGD(module.parameters(), lr=1e-6), 60)
        operator = dg.hessian(module, None, X, Y, loss=LOSS)
        matrix = operator @ np.eye(operator.shape[0])
        last = watcher.run.of("curvature")[-1]
        np.testing.assert_allclose(last["sharpness"], np.linalg.eigvalsh(matrix)[-1], rtol=0.02)
        np.testing.assert_allclose(last["edge"], 2e6, rtol=1e-5)

    def test_adam_and_told_losses(self, monkeypatch):
        module = self.module(self.torch.nn.Dropout(0.5))
        watcher = dg.Doctor(module, LOSS, probe=(X, Y), batch_size=32)
        self.train(watcher, module, self.torch.optim.Adam(module.parameters(), lr=0.01))
        vitals = watcher.run.of("vitals")[-1]
        assert vitals["rate"] == 0.01
        assert vitals["told"]["count"] == 2
        assert watcher.run.facts["optimizer"] == "adam"
        assert "Dropout" in str(watcher.verdict())
        assert module.training  # it is only looked at
        monkeypatch.setattr(watcher, "_is_due", lambda name: True)
        self.train(watcher, module, self.torch.optim.Adam(module.parameters(), lr=0.01), 4)
        first, *_, last = watcher.run.of("kernel")  # one more, if the clock has allowed it before
        assert first["velocity"] == pytest.approx(0, abs=1e-6)
        assert 0 < last["velocity"] < 1

    def test_a_frozen_layer(self):
        module = self.module()
        module[0].requires_grad_(False)
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        self.train(watcher, module, self.torch.optim.SGD(module[2].parameters(), lr=0.1))
        cause = watcher.verdict().causes[0]
        assert cause.name == "frozen layer"
        assert cause.evidence.startswith("0 never moved")

    def test_curvature_of_frozen_layers_is_not_felt(self):
        module = self.module()
        with self.torch.no_grad():
            module[2].weight.mul_(30)  # which gives the first layer most of the curvature
        module[0].requires_grad_(False)
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        self.train(watcher, module, self.torch.optim.SGD(module[2].parameters(), lr=1e-3), 40)
        last = watcher.run.of("curvature")[-1]
        assert last["groups"]["0"] == 0
        expected = dg.hessian(module, None, X, Y, loss=LOSS).leading(1).values[0]
        np.testing.assert_allclose(last["sharpness"], expected, rtol=0.05)

    def test_a_module_of_which_nothing_is_trained_is_refused(self):
        module = self.module().requires_grad_(False)
        with pytest.raises(InputError, match="none requires a gradient"):
            dg.Doctor(module, LOSS, probe=(X, Y))(module)

    def test_running_statistics_are_those_of_the_step(self):
        module = self.module(self.torch.nn.BatchNorm1d(8))
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        self.train(watcher, module, self.torch.optim.SGD(module.parameters(), lr=1e-9), 80)
        with self.torch.no_grad():
            value = self.torch.nn.functional.cross_entropy(
                module.eval()(self.torch.as_tensor(X)), self.torch.as_tensor(Y)
            )
        assert watcher.run.of("vitals")[-1]["value"] == pytest.approx(float(value), rel=1e-3)

    def test_a_lightning_callback_calls_it(self):
        module = self.module()
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        hook = watcher.callback()
        trainer = SimpleNamespace(optimizers=[self.torch.optim.SGD(module.parameters(), lr=0.1)])
        for step in range(4):
            hook.on_train_batch_end(trainer, SimpleNamespace(), {"loss": self.torch.tensor(1.0)}, None, step)
        assert len(watcher.run.of("vitals")) == 2
        assert watcher.run.of("vitals")[0]["told"]["mean"] == 1.0

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
    def test_a_lightning_trainer_calls_it(self, name):
        lightning = pytest.importorskip(name)
        network, data = self.module(), self.torch.utils.data
        watcher = dg.Doctor(network, LOSS, probe=(X, Y), batch_size=8)

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.network = network

            def training_step(self, batch, index):
                return TestTorch.torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

            def configure_optimizers(self):
                return TestTorch.torch.optim.SGD(self.parameters(), lr=0.1)

        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(accelerator="cpu", max_steps=6, callbacks=[watcher.callback()], **quiet)
        tensors = data.TensorDataset(self.torch.as_tensor(X), self.torch.as_tensor(Y))
        trainer.fit(Module(), data.DataLoader(tensors, batch_size=8))
        vitals = watcher.run.of("vitals")
        assert [v["step"] for v in vitals] == [0, 2, 4]
        assert vitals[-1]["rate"] == 0.1
        assert vitals[-1]["told"]["count"] == 2

    def test_what_the_last_layer_reads(self):
        module = self.module()
        watcher = dg.Doctor(module, LOSS, probe=(X, Y))
        watcher(module)
        last = watcher._patient.readout([p.detach() for p in module.parameters()], watcher._chart.readout(3))
        with self.torch.no_grad():
            np.testing.assert_allclose(last.features, module[:-1](self.torch.as_tensor(X)), rtol=1e-5)
            np.testing.assert_allclose(
                last.outputs - last.features @ last.weights.T - module[-1].bias.numpy(), 0, atol=1e-5
            )

    @pytest.mark.parametrize("loss", [Mse(), SoftmaxCrossEntropy()])
    def test_losses_are_the_same_as_in_jax(self, loss):
        module = self.module()
        y = Y if isinstance(loss, SoftmaxCrossEntropy) else np.eye(3)[Y]
        watcher = dg.Doctor(module, loss, probe=(X, y))
        watcher(module)
        watcher(module)
        with self.torch.no_grad():
            outputs = module(self.torch.as_tensor(X)).numpy()
        values = jax.vmap(loss)(jnp.asarray(outputs), jnp.asarray(y, outputs.dtype if np.ndim(y) > 1 else None))
        assert watcher.run.of("vitals")[0]["value"] == pytest.approx(float(jnp.mean(values)), rel=1e-5)

    def test_a_jax_loss_is_refused(self):
        module = self.module()
        with pytest.raises(InputError, match="loss of everwide"):
            dg.Doctor(module, lambda f, y: jnp.sum(f), probe=(X, Y))(module)
