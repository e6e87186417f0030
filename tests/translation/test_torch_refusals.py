"""PyTorch modules that cannot be read get a sentence with their place, the reason and the way out."""

import pytest

import everwide as ew
from everwide import ArchitectureError

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.wide


class Module(nn.Module):
    """A module around a function of its input and some layers."""

    def __init__(self, fn, **layers):
        super().__init__()
        self.fn = fn
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.fn(self, x)


def two(fn, **more):
    return Module(fn, a=nn.Linear(6, 8), b=nn.Linear(8, 8), **more)


class Extra(nn.Module):
    def forward(self, x, mask):
        return x * mask


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(4)

    def forward(self, x):
        return self.fc(x)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Linear(6, 8), nn.Parameter(torch.randn(4, 8))

    def forward(self, x):
        return self.embed(x) + self.position


def branch(m, x):
    return m.a(x) if x.sum() > 0 else m.a(-x)


REFUSED = {
    "control flow": (two(branch), (6,), r"cannot be read without its data.*Control flow.*empirical_ntk"),
    "control flow on shapes": (two(lambda m, x: m.a(x) if len(x) > 3 else x), (6,), "cannot be read without its data"),
    "unknown calls": (
        two(lambda m, x: torch.cumsum(m.a(x), 1)),
        (6,),
        "a call of cumsum is not known",
    ),
    "unknown layers": (
        two(lambda m, x: m.u(m.a(x)), u=nn.Threshold(0.1, 0.0)),
        (6,),
        "Threshold is not known",
    ),
    "shapes that do not fit": (two(lambda m, x: m.a(x)), (5,), r"a .*does not fit.*\(5,\).*input_shape"),
    "lazy modules": (Lazy(), (6,), "is lazy: fc.weight has no shape.*Call the module once"),
    "more arguments": (Extra(), (6,), "needs mask beside its input"),
    "tied weights": (two(lambda m, x: m.b(torch.relu(m.b(torch.relu(m.a(x)))))), (6,), "has the weights of b"),
    "shared draws": (
        two(lambda m, x: m.b(torch.relu(m.a(x)) + m.a2(torch.relu(x @ torch.eye(6)))), a2=nn.Linear(6, 8)),
        (6,),
        "matmul",
    ),
    "max pooling of the input": (
        Module(lambda m, x: m.c(m.p(x)), p=nn.MaxPool2d(2), c=nn.Conv2d(3, 4, 2)),
        (3, 6, 6),
        "function of the raw input",
    ),
    "indices of the largest": (
        Module(lambda m, x: m.p(m.c(x))[0], p=nn.MaxPool2d(2, return_indices=True), c=nn.Conv2d(3, 4, 3)),
        (3, 6, 6),
        "return_indices",
    ),
    "attention to another signal": (
        two(
            lambda m, x: m.m(m.a(x), m.c(x), m.c(x))[0],
            m=nn.MultiheadAttention(8, 2, batch_first=True),
            c=nn.Linear(6, 8),
        ),
        (5, 6),
        "attention to another signal.*must be one signal",
    ),
    "attention over the examples": (
        two(lambda m, x: m.m(*[m.a(x)] * 3)[0], m=nn.MultiheadAttention(8, 2)),
        (5, 6),
        "examples at axis 1.*batch_first",
    ),
    "recurrent layers, times first": (
        two(lambda m, x: m.r(m.a(x))[0], r=nn.LSTM(8, 8)),
        (5, 6),
        "batch_first=True reads examples first",
    ),
    "first states": (
        two(lambda m, x: m.r(m.a(x), torch.ones(1, x.size(0), 8))[0], r=nn.GRU(8, 8, batch_first=True)),
        (5, 6),
        "more than one argument",
    ),
    "last states of two layers": (
        two(lambda m, x: m.b(m.r(m.a(x))[1][-1]), r=nn.RNN(8, 8, 2, batch_first=True)),
        (5, 6),
        "last states of several layers",
    ),
    "vectors of tokens that change": (
        Module(lambda m, x: m.e(x), e=nn.Embedding(10, 4, max_norm=1.0)),
        (6,),
        "max_norm",
    ),
    "a vector for all places": (
        Module(lambda m, x: m.a(x) + m.b.bias, a=nn.Linear(6, 8), b=nn.Linear(8, 8)),
        (5, 6),
        "a vector for every place",
    ),
    "groups of the input": (
        Module(lambda m, x: m.d(torch.relu(m.c(x))), c=nn.Conv2d(4, 4, 3, groups=2), d=nn.Conv2d(4, 4, 1)),
        (4, 5, 5),
        "Relu needs a Gaussian signal",
    ),
    "other padding": (
        Module(lambda m, x: m.c(x), c=nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")),
        (4, 5, 5),
        "padding_mode='reflect'",
    ),
    "pieces of an axis": (two(lambda m, x: m.a(x).view(-1, 2, 4, 8)), (8, 6), "cuts an axis into pieces"),
    "parts that are returned": (two(lambda m, x: m.a(x).chunk(2, -1)), (6,), "returns 2 parts of a tensor"),
    "a table of positions that is too short": (
        two(lambda m, x: m.a(x) + m.p(torch.arange(x.shape[1])), p=nn.Embedding(4, 8)),
        (5, 6),
        "p has vectors for 4 places, and the input has 5",
    ),
    "pieces of channels": (two(lambda m, x: torch.relu(m.a(x).view(-1, 2, 4))), (6,), "cut into pieces of 2 x 4"),
    "a part of the input": (two(lambda m, x: m.b(x[:, :8])), (9,), "do it to the data"),
    "bilinear maps": (
        two(lambda m, x: m.w(m.a(x), m.b(torch.relu(m.a(x)))), w=nn.Bilinear(8, 8, 2)),
        (6,),
        "more than one argument.*nn.Linear",
    ),
    "the mean of the batch": (
        two(lambda m, x: m.a(x) - m.a(x).mean(0)),
        (6,),
        "over the examples",
    ),
    "several results": (two(lambda m, x: (m.a(x), x)), (6,), "returns tuple|returns .*expected one tensor"),
    "a parameter of its own": (
        two(lambda m, x: m.a(x) + m.a.bias),
        (6,),
        "that belongs to no layer",
    ),
    "a sequence longer than the positions": (Positions(), (5, 6), r"add.*does not fit.*\(5, 8\)"),
    "weight norm": (
        two(lambda m, x: m.w(m.a(x)), w=nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))),
        (6,),
        "parametrized.*remove_parametrizations",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_torch_modules_that_have_no_limit(name):
    module, shape, message = REFUSED[name]
    with pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(module, shape)


def test_torch_trained_weights_are_seen():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    ew.from_module(module, (6,))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    x = torch.randn(64, 6)
    for _ in range(20):
        optimizer.zero_grad()
        (module(x)[:, 0] - x[:, 0]).square().mean().backward()
        optimizer.step()
    with pytest.raises(ArchitectureError, match=r"(?s)trained, or initialized otherwise.*empirical_ntk"):
        ew.from_module(module, (6,))
    normed = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))
    normed(x)
    with pytest.raises(ArchitectureError, match="running_mean is off"):
        ew.from_module(normed.eval(), (6,))


def test_torch_modules_are_left_as_they_are():
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    ew.from_module(module, (6,), instead={"1": ew.LayerNorm()})
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_torch_frozen_layers_are_frozen():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    module[0].requires_grad_(False)
    first, _, last = ew.from_module(module, (6,)).net.layers
    assert (first.affine.frozen, last.affine.frozen) == (True, False)


def test_torch_meta_modules_have_no_weights_to_look_at():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    assert len(ew.from_module(module, (6,)).rows) == 3


def test_torch_default_arguments_are_kept():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(6, 8)

        def forward(self, x, scale=None):
            x = self.a(x)
            return x if scale is None else x * scale

    assert len(ew.from_module(Optional(), (6,)).rows) == 1
