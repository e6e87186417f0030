"""PyTorch modules against brute force: one example, one output, one backward pass at a time."""

import jax.numpy as jnp
import numpy as np
import pytest

from everwide.empirical._factors import Lookup, Outer, Plain
from everwide.empirical._models import as_model
from everwide.empirical._refusals import BatchDependenceError
from everwide.empirical._torch import PlanError, torch_tangents
from everwide.testing._draws import EXACT32, EXACT64

torch = pytest.importorskip("torch")
nn = torch.nn

from empirical.torch_models import CASES, RANDOM, ROWS, Routed  # noqa: E402 - where there is torch

DTYPE = torch.float64 if jnp.ones(()).dtype == np.float64 else torch.float32
EQUAL = EXACT64 if torch.float64 == DTYPE else EXACT32


def brute_force(module, x):
    """`(n, outputs, parameters)` by plain autograd: independent of hooks, factors and torch.func."""
    rows, parameters = [], [p for p in module.parameters() if p.requires_grad]
    for one in torch.as_tensor(np.asarray(x)):
        y = module((one.to(DTYPE) if one.is_floating_point() else one)[None]).reshape(-1)
        for out in y:
            grads = torch.autograd.grad(out, parameters, retain_graph=True, allow_unused=True)
            zeros = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, parameters, strict=True)]
            rows.append(torch.cat([g.reshape(-1) for g in zeros]))
    return torch.stack(rows).reshape(len(x), -1, rows[0].numel()).detach().numpy()


def gram_of(factor1, factor2):
    """`(n1, k, n2, k)` of one part, from the definitions in the docstrings of the factors."""
    dense1, dense2 = dense(factor1), dense(factor2)
    return np.einsum("iap,jbp->iajb", dense1, dense2)


def dense(factor):
    if isinstance(factor, Plain):
        return np.asarray(factor.jacobian)
    if isinstance(factor, Outer):
        j = np.einsum("ngti,nagto->nagio", np.asarray(factor.left), np.asarray(factor.right))
        return j.reshape(*j.shape[:2], -1)
    right = np.asarray(factor.right)
    n, k, _, width = right.shape
    out = np.zeros((n, k, factor.rows, width))
    for i, row in enumerate(np.asarray(factor.indices)):
        for t, index in enumerate(row):
            if index >= 0:
                out[i, :, index] += right[i, :, t]
    return out.reshape(n, k, -1)


def ntk_of(tangents, x1, x2):
    cotangents = jnp.eye(tangents.outputs)
    parts1, parts2 = tangents.factors(x1, cotangents), tangents.factors(x2, cotangents)
    assert [p.names for p in parts1] == [p.names for p in parts2]
    return sum(gram_of(p1.factor, p2.factor) for p1, p2 in zip(parts1, parts2, strict=True))


def made(name):
    torch.manual_seed(0)
    make, x = CASES[name]
    return make().to(DTYPE).eval(), x


def expected_ntk(module, x1, x2):
    return np.einsum("iap,jbp->iajb", brute_force(module, x1), brute_force(module, x2))


@pytest.mark.parametrize("name", CASES)
def test_factors_equal_brute_force(name):
    module, x = made(name)
    got = ntk_of(torch_tangents(as_model(module), x), x[:3], x[3:])
    assert EQUAL.excess(got, expected_ntk(module, x[:3], x[3:])) < 1


ATTENTION = {f"a.{name}" for name in ("in_proj_weight", "in_proj_bias", "bias_k", "bias_v")}
ATTENTION |= {"a.out_proj.weight", "a.out_proj.bias"}


def forms(name):
    tangents = torch_tangents(as_model(made(name)[0]), made(name)[1])
    return {n: f.role.value for n, f in zip(tangents.names, tangents.forms, strict=True)}


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("mlp", set()),
        ("residual", set()),
        ("merged tokens", set()),
        ("embedding", set()),
        ("elsewhere", {"scale", "unused", "a.weight"}),
        ("tied language model", {"table.weight"}),
        ("gru", set()),
        ("lstm", set()),
        ("rnn", {"start"}),
        ("transformer", {f"block.norm{i}.{p}" for i in (1, 2) for p in ("weight", "bias")}),  # small as they are
        ("attention", set()),
        ("attention with keys of their own", {"a.in_proj_bias"}),
        ("attention with a learned key", ATTENTION),
        ("transposed convolutions", set()),
    ],
)
def test_only_what_no_layer_explains_is_plain(name, plain):
    assert {n for n, role in forms(name).items() if role == "plain"} == plain


def test_examples_are_found_where_they_are():
    assert forms("transformer, examples second") == forms("transformer")
    assert forms("transformer")["block.linear1.weight"] == "weight"


class Turning(nn.Module):
    """The order of the examples is changed where the first one is negative: hooks see them in the wrong order."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        turn = x[0, 0] < 0
        y = self.b(torch.tanh(self.a(x.flip(0) if turn else x)))
        return y.flip(0) if turn else y


@pytest.mark.parametrize("make", [Routed, Turning])
def test_calls_that_depend_on_the_data_are_noticed(make):
    torch.manual_seed(0)
    module, other = make().to(DTYPE), np.abs(ROWS) * [[-1, 1, 1, 1, 1], *[[1, 1, 1, 1, 1]] * 4]
    model, first = as_model(module), np.abs(ROWS)
    tangents = torch_tangents(model, first)
    assert tangents.forms[0].role.value == "weight"
    assert EQUAL.excess(ntk_of(tangents, first, first), expected_ntk(module, first, first)) < 1
    with pytest.raises(PlanError, match=r"depend on the data, for a\.weight"):
        tangents.factors(other, jnp.eye(2))
    plain = torch_tangents(model, first, plain_only=True)
    assert EQUAL.excess(ntk_of(plain, first, other), expected_ntk(module, first, other)) < 1
    got = tangents.gradients(other, jnp.ones((5, 2)))  # single gradients need no plan
    flat = np.concatenate([np.asarray(g).reshape(5, -1) for g in got.values()], 1)
    assert EQUAL.excess(flat, brute_force(module, other).sum(1)) < 1


def test_a_weight_and_its_bias_share_their_cotangents():
    module, x = made("mlp")
    weight, bias, *_ = torch_tangents(as_model(module), x).factors(x, jnp.eye(3))
    assert (weight.names, bias.names) == (("0.weight",), ("0.bias",))
    assert weight.factor.right is bias.factor.right
    assert weight.factor.size() == 20
    assert bias.factor.size() == 4


def test_a_table_is_looked_up():
    module, x = made("embedding")
    table = torch_tangents(as_model(module), x).factors(x, jnp.eye(7))[0].factor
    assert isinstance(table, Lookup)
    assert table.rows == 7
    np.testing.assert_array_equal(np.asarray(table.indices), np.where(x == 0, -1, x))  # 0 is the padding


def test_combinations_of_outputs():
    module, x = made("cnn")
    cotangents = RANDOM.normal(size=(2, 3))
    parts = torch_tangents(as_model(module), x).factors(x, jnp.asarray(cotangents))
    got = sum(gram_of(p.factor, p.factor) for p in parts)
    jacobian = np.einsum("ka,nap->nkp", cotangents, brute_force(module, x))
    assert EQUAL.excess(got, np.einsum("iap,jbp->iajb", jacobian, jacobian)) < 1


@pytest.mark.parametrize("name", ["cnn", "tied language model", "gru"])
def test_gradients_with_a_weight_for_each_example(name):
    module, x = made(name)
    tangents = torch_tangents(as_model(module), x)
    weights = RANDOM.normal(size=(5, tangents.outputs))
    got = tangents.gradients(x, jnp.asarray(weights))
    assert {n: g.shape[1:] for n, g in got.items()} == {n: tuple(p.shape) for n, p in module.named_parameters()}
    flat = np.concatenate([np.asarray(g).reshape(5, -1) for g in got.values()], 1)
    assert EQUAL.excess(flat, np.einsum("na,nap->np", weights, brute_force(module, x))) < 1


def snapshot(module):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    facts = [(m.training, len(m._forward_hooks), [p.grad is None for p in m.parameters()]) for m in module.modules()]
    return state, facts


class Counting(nn.Module):
    """Writes into a buffer whenever it is called, and fails when it is told to."""

    def __init__(self):
        super().__init__()
        self.a, self.fails = nn.Linear(5, 2), False
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = self.a(x)
        if self.fails:
            raise ZeroDivisionError
        return y


@pytest.mark.parametrize("fails", [False, True])
def test_the_module_is_not_changed(fails):
    module = Counting().to(DTYPE)
    tangents = torch_tangents(as_model(module), ROWS)
    before, seed = snapshot(module), torch.random.get_rng_state()
    module.fails = fails
    if fails:
        with pytest.raises(ZeroDivisionError):
            tangents.factors(ROWS, jnp.eye(2))
    else:
        tangents.factors(ROWS, jnp.eye(2))
    after = snapshot(module)
    assert after[1] == before[1]
    assert all(torch.equal(after[0][name], before[0][name]) for name in before[0])
    assert torch.equal(torch.random.get_rng_state(), seed)


def test_frozen_parameters_are_constants():
    module, x = made("mlp")
    module[0].requires_grad_(False)
    tangents = torch_tangents(as_model(module), x)
    assert tangents.names == ("2.weight", "3.weight", "3.bias")
    assert EQUAL.excess(ntk_of(tangents, x, x), expected_ntk(module, x, x)) < 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_does_not_matter(mode):
    module, x = made("mlp")
    with mode():
        got = ntk_of(torch_tangents(as_model(module), x), x[:1], x)
    assert EQUAL.excess(got, expected_ntk(module, x[:1], x)) < 1


def test_scalars_and_several_inputs():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 3)

        def forward(self, pair):
            return (self.a(pair["x"]) * pair["gate"][:, None]).sum(1)

    module, x = Inner().to(DTYPE), {"x": ROWS, "gate": np.arange(5)}
    tangents = torch_tangents(as_model(module), x)
    assert tangents.outputs == 1
    got = ntk_of(tangents, x, x)[:, 0, :, 0]
    gate = np.arange(5.0)
    assert EQUAL.excess(got, 3 * np.outer(gate, gate) * (ROWS @ ROWS.T + 1)) < 1


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.GRU(5, 2), "returned tuple"),
        (nn.Unflatten(1, (5, 1)), r"returned torch.float\d\d of shape \(1, 5, 1\)"),
    ],
)
def test_outputs_that_cannot_be_used(module, message):
    module = nn.Sequential(nn.Linear(5, 5), module).to(DTYPE)
    with pytest.raises(ValueError, match=message):
        torch_tangents(as_model(module), ROWS)


def test_outputs_without_a_derivative():
    class Stopped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 2)

        def forward(self, x):
            return self.a(x).detach()

    with pytest.raises(ValueError, match=r"no derivative.*detach"):
        torch_tangents(as_model(Stopped().to(DTYPE)), ROWS)


class Attending(nn.Module):
    """Attention between examples, or dropout by a function: no layer to blame."""

    def __init__(self, random):
        super().__init__()
        self.a, self.random = nn.Linear(5, 2), random

    def forward(self, x):
        y = self.a(x)
        return nn.functional.dropout(y) if self.random else torch.softmax(y @ y.T, 1) @ y


@pytest.mark.parametrize(("random", "message"), [(True, "random"), (False, "mixes examples")])
def test_mixing_and_chance_are_found_by_calling(random, message):
    model, seed = as_model(Attending(random).to(DTYPE)), torch.random.get_rng_state()
    with pytest.raises(BatchDependenceError, match=message):
        torch_tangents(model, ROWS)
    assert torch.equal(torch.random.get_rng_state(), seed)


def test_bytes_grow_with_the_cotangents():
    module, x = made("cnn")
    tangents = torch_tangents(as_model(module), x)
    parts = tangents.factors(x, jnp.eye(3))
    held = sum(a.size * a.dtype.itemsize for p in parts for a in vars(p.factor).values() if hasattr(a, "size"))
    assert tangents.example_bytes(3) > held / 5
    assert tangents.example_bytes(30) > 5 * tangents.example_bytes(3) / 2
