"""PyTorch modules: the kernels of their own initializations are those of the translation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide._walk import walk

torch = pytest.importorskip("torch")

from translation.draws import WIDTHS, require_agreement, require_agreement_at, rows  # noqa: E402 - where there is torch
from translation.torch_modules import AT_ONE_WIDTH, CASES, SAMPLED_CASES, VOCABULARY, AlexNet, Vgg  # noqa: E402

pytestmark = pytest.mark.wide


def torch_kernels(make, draws):
    """Kernels of draws, by plain autograd: `(draws, n, n)` each."""

    def kernels(width, x):
        torch.manual_seed(0)
        batch = torch.as_tensor(x)
        pairs = [one_draw(make(width).eval(), batch) for _ in range(draws)]
        return [np.stack(found) for found in zip(*pairs, strict=True)]

    return kernels


def one_draw(module, x):
    """Scales and shifts of normalizations, which the limit does not train, are left out of the tangent kernel."""
    y = module(x)
    norms = torch.nn.BatchNorm2d | torch.nn.GroupNorm | torch.nn.LayerNorm | torch.nn.RMSNorm | torch.nn.InstanceNorm1d
    trained = [layer for layer in module.modules() if not isinstance(layer, norms)]
    parameters = [one for layer in trained for one in layer.parameters(recurse=False) if one.requires_grad]
    slopes = []
    for one in y[:, 0]:
        grads = torch.autograd.grad(one, parameters, retain_graph=True)
        slopes.append(torch.cat([g.reshape(-1) for g in grads]))
    slopes = torch.stack(slopes)
    with torch.no_grad():
        return (y @ y.T / y.shape[1]).numpy(), (slopes @ slopes.T).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_torch_module(name):
    make, shape, draws, layers = CASES[name]
    limit = ew.from_module(make(8).eval(), shape)
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}
    tokens = VOCABULARY if name == "words" else 0
    # The tangent kernel of a gate has few terms that grow with the width: what falls like 1 / width^2 is seen in it.
    widths = (32, 64, 256) if name == "patches" else WIDTHS
    kernels = torch_kernels(make, draws)
    require_agreement(lambda width: make(width).eval(), shape, kernels, tokens=tokens, widths=widths)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED_CASES)
def test_torch_module_of_which_a_part_is_sampled(name):
    make, shape, draws, layers = SAMPLED_CASES[name]
    limit = ew.from_module(make(8).eval(), shape)
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}
    assert "sampled" in {str(row.outcome) for row in limit.rows}
    kernels, tokens = torch_kernels(make, draws), VOCABULARY if name == "text" else 0
    require_agreement(lambda width: make(width).eval(), shape, kernels, tokens=tokens, draws=32)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_ONE_WIDTH)
def test_torch_module_at_one_width(name):
    make, shape, width, draws, layers = AT_ONE_WIDTH[name]
    limit = ew.from_module(make(8).eval(), shape)
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}
    sampled = 300 if "Sampled" in layers else None
    require_agreement_at(lambda n: make(n).eval(), shape, torch_kernels(make, draws), width, draws=sampled)


@pytest.mark.slow
def test_torch_biases_of_hidden_layers_are_seen():
    """Draws without them are told from those with them."""
    make, shape, width, draws, _ = AT_ONE_WIDTH["vgg"]

    def unbiased(width):
        module = make(width)
        for layer in module.features[3::3]:
            torch.nn.init.zeros_(layer.bias)
        return module

    with pytest.raises(AssertionError):
        require_agreement_at(lambda n: make(n).eval(), shape, torch_kernels(unbiased, draws), width)


@pytest.mark.slow
def test_torch_another_initialization_is_seen():
    """The comparison is sharp enough to tell PyTorch's variances from those of Kaiming's rule for rectifiers."""
    make, shape, draws, _ = CASES["mlp"]

    def kaiming(width):
        module = make(width)
        torch.nn.init.kaiming_normal_(module.fc2.weight, nonlinearity="tanh", a=0.0)
        return module

    with pytest.raises(AssertionError):
        require_agreement(make, shape, torch_kernels(kaiming, draws))


class Halves(torch.nn.Module):
    """Two halves of the channels, one of which is read through a function; or one half twice."""

    def __init__(self, second):
        super().__init__()
        self.first, self.last, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(4, 2), second

    def forward(self, x):
        x = self.first(x)
        return self.last(x[:, :4] + torch.tanh(x[:, self.second : self.second + 4]))


def test_torch_halves_of_the_channels_are_independent_and_one_half_is_not():
    for second, outcome in ((4, "exact"), (0, "sampled")):
        rows_of = ew.from_module(Halves(second), (6,)).rows
        assert {str(row.outcome) for row in rows_of if row.layer == "Sum"} == {outcome}


GEOMETRY = {
    "strides and padding": (
        lambda: torch.nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0)),
        lambda: torch.nn.Conv2d(4, 5, 3, dilation=(1, 2), padding=(0, 2)),
    ),
    "an even window that keeps the size": (
        lambda: torch.nn.Conv2d(3, 4, (2, 4), padding="same"),
        lambda: torch.nn.Conv2d(4, 5, 3, padding=1, padding_mode="circular"),
    ),
    "transposed": (
        lambda: torch.nn.Conv2d(3, 4, 3),
        lambda: torch.nn.ConvTranspose2d(4, 5, (3, 2), stride=2, padding=(1, 0), output_padding=(1, 0)),
    ),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", GEOMETRY)
def test_torch_the_network_computes_what_the_module_computes(name):
    """With the weights of the module, the network of the translation has its outputs, at every place."""
    first, second = (make() for make in GEOMETRY[name])
    module = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    shape = (3, 8, 7)
    limit = ew.from_module(module, shape)
    drawn = limit.net.init(jax.random.key(0), limit.input_shape, parametrization="standard")
    params = tuple(ours(p, one) for p, one in zip(drawn, module, strict=True))
    x = rows(shape, n=2)
    y = jax.vmap(lambda one: limit.net.apply(params, one))(limit.examples(x))
    with torch.no_grad():
        expected = module(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(np.moveaxis(np.asarray(y), -1, 1), expected, rtol=1e-4, atol=1e-5)


def ours(params, layer):
    """The weights of a convolution of PyTorch in our order."""
    if not params:
        return params
    weight = layer.weight.detach().numpy()
    if isinstance(layer, torch.nn.ConvTranspose2d):
        weight = weight.transpose(2, 3, 0, 1)[::-1, ::-1]  # windows are read the other way round
    else:
        weight = weight.transpose(2, 3, 1, 0)
    both = jnp.asarray(weight.copy()), jnp.asarray(layer.bias.detach().numpy())
    return eqx.tree_at(lambda p: (p.weight, p.bias), params, both)


def test_torch_modes_are_read():
    training, evaluation = (ew.from_module(one, (3, 8, 8)) for one in (AlexNet(4), AlexNet(4).eval()))
    assert [row.layer for row in training.rows if row.place == "classifier.0"] == ["Dropout(rate=0.5)"]
    assert [row.layer for row in evaluation.rows if row.place == "classifier.0"] == ["Identity"]
    with pytest.raises(ew.ArchitectureError, match=r"(?s)3 places.*features\.1 .*statistics of the batch"):
        ew.from_module(Vgg(4), (3, 6, 6))
    asked = ew.from_module(Vgg(4), (3, 6, 6), instead={"BatchNorm2d": ew.LayerNorm(sites=True)})
    assert [str(row.outcome) for row in asked.rows if "BatchNorm" in row.module] == ["changed"] * 3
