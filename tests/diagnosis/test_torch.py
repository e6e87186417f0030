"""Operators of PyTorch modules, against those of the same functions in JAX and against autograd's own Hessian."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from everwide.diagnosis import fisher, gauss_newton, hessian, preconditioner  # noqa: E402
from everwide.diagnosis._optimizers import read_torch  # noqa: E402
from everwide.training import Mse, SoftmaxCrossEntropy  # noqa: E402

pytestmark = pytest.mark.wide
RNG = np.random.default_rng(0)
N, D, K = 7, 4, 3
X, LABELS = RNG.normal(size=(N, D)), np.arange(N) % K


class Tied(torch.nn.Module):
    """One matrix twice, a normalization, and a layer whose weights are frozen."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(D, D))
        self.norm = torch.nn.LayerNorm(D)
        self.frozen = torch.nn.Linear(D, D).requires_grad_(False)
        self.out = torch.nn.Linear(D, K)

    def forward(self, x):
        h = torch.tanh(x @ self.w)
        return self.out(self.norm(torch.tanh(self.frozen(h) @ self.w.T)))


class Attention(torch.nn.Module):
    """Attention over two pieces of a row."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(2, 1, batch_first=True)
        self.out = torch.nn.Linear(4, K)

    def forward(self, x):
        tokens = x.reshape(len(x), 2, 2)
        return self.out(self.attention(tokens, tokens, tokens, need_weights=False)[0].reshape(len(x), 4))


def convolution():
    nn = torch.nn
    return nn.Sequential(nn.Unflatten(1, (1, D)), nn.Conv1d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(4, K))


@pytest.fixture(params=[Tied, Attention, convolution])
def module(request):
    torch.manual_seed(0)
    return request.param().double().eval()


def whole(module):
    """The Hessian of the mean cross-entropy, row by row."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(X)), torch.tensor(LABELS))
    slopes = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    rows = []
    for slope in slopes:
        grads = torch.autograd.grad(slope, parameters, retain_graph=True, allow_unused=True)
        pairs = zip(grads, parameters, strict=True)
        rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs]).numpy())
    return np.array(rows), slopes.detach().numpy()


@pytest.mark.parametrize("memory", [None, 4000])
def test_matrices(module, memory):
    h, slope = whole(module)
    op = hessian(module, None, X, LABELS, loss=SoftmaxCrossEntropy(), memory=memory)
    unit = np.eye(len(h))
    assert np.allclose(op @ unit, h, atol=1e-11)
    assert np.allclose(op.prepared() @ unit, h, atol=1e-11)
    assert np.allclose(op.gradient(), slope, atol=1e-11)
    first, rest = op.split()
    assert np.allclose(first @ unit + rest @ unit, h, atol=1e-11)
    out = module(torch.tensor(X)).detach().numpy()
    p = np.exp(out) / np.exp(out).sum(1, keepdims=True)
    parameters = [q for q in module.parameters() if q.requires_grad]
    jacobian = np.zeros((N, K, len(h)))
    outputs = module(torch.tensor(X))
    for i, k in np.ndindex(N, K):
        grads = torch.autograd.grad(outputs[i, k], parameters, retain_graph=True, allow_unused=True)
        pairs = zip(grads, parameters, strict=True)
        jacobian[i, k] = np.concatenate([(torch.zeros_like(q) if g is None else g).numpy().ravel() for g, q in pairs])
    inner = np.einsum("nk,kl->nkl", p, np.eye(K)) - np.einsum("nk,nl->nkl", p, p)
    g = np.einsum("nkp,nkl,nlq->pq", jacobian, inner, jacobian) / N
    assert np.allclose(gauss_newton(module, None, X, LABELS, loss=SoftmaxCrossEntropy()) @ unit, g, atol=1e-11)
    assert np.allclose(fisher(module, None, X, loss=SoftmaxCrossEntropy()) @ unit, g, atol=1e-11)
    rows = np.einsum("nkp,nk->np", jacobian, p - np.eye(K)[LABELS])
    empirical = fisher(module, None, X, LABELS, loss=SoftmaxCrossEntropy(), empirical=True)
    assert np.allclose(empirical @ unit, rows.T @ rows / N, atol=1e-11)
    for name, pieces in op.groups.items():
        index = np.concatenate([np.arange(len(h))[piece] for piece in pieces])
        assert np.allclose(op.block(name) @ np.eye(len(index)), h[np.ix_(index, index)], atol=1e-11)
    assert np.isclose(op.leading(1, tolerance=1e-10).values[0], np.linalg.eigvalsh(h)[-1])


def test_preconditioned_by_adam():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(D, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    adam = torch.optim.Adam(module.parameters(), lr=0.1)
    before = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    torch.mean(module(torch.tensor(X)) ** 2).backward()
    slope = np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])
    adam.step()
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    p = np.asarray(preconditioner(adam))
    assert np.allclose(before - after, 0.1 * slope / p, atol=1e-6)
    op = hessian(module, None, X, np.zeros(N), loss=Mse())
    h = op @ np.eye(op.shape[0])
    assert np.allclose(op.preconditioned(p) @ np.eye(len(h)), h / np.sqrt(np.outer(p, p)), atol=1e-5)


@pytest.mark.parametrize(
    "rule", [lambda p: torch.optim.Adam(p, 0.1, amsgrad=True), lambda p: torch.optim.RMSprop(p, 0.1, centered=True)]
)
def test_preconditioned_by_relatives_of_adam(rule):
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = rule([parameter])
    for size in (3.0, 0.1, 2.0, 0.2):
        before, parameter.grad = parameter.detach().clone(), size * torch.randn(3, dtype=torch.float64)
        optimizer.step()
    state = optimizer.state[parameter]
    first = state["exp_avg"] / (1 - 0.9**4) if "exp_avg" in state else parameter.grad
    step = (parameter.detach() - before).numpy()
    assert np.allclose(-0.1 * first.numpy() / np.asarray(preconditioner(optimizer)), step, rtol=1e-6)
    seen = read_torch(optimizer, [parameter])
    p = (seen.second[0] / seen.bias()[1]).sqrt() + 1e-8
    assert np.allclose(-0.1 * first.numpy() / p.numpy(), step, rtol=1e-6)


def test_an_optimizer_with_groups_brings_its_own_order():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(D, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    matrices, biases = [p for p in module.parameters() if p.ndim == 2], [p for p in module.parameters() if p.ndim == 1]
    adam = torch.optim.AdamW([{"params": matrices}, {"params": biases, "weight_decay": 0.0}], lr=0.1)
    torch.mean(module(torch.tensor(X)) ** 2).backward()
    adam.step()
    p = np.concatenate([np.abs(p.grad.numpy()).ravel() + 1e-8 for p in module.parameters()])  # after one step
    op = hessian(module, None, X, np.zeros(N), loss=Mse())
    h = op @ np.eye(op.shape[0])
    assert np.allclose(op.preconditioned(adam) @ np.eye(len(h)), h / np.sqrt(np.outer(p, p)), rtol=1e-6)
    last = (h / np.sqrt(np.outer(p, p)))[-4:, -4:]
    assert np.allclose(op.block("2").preconditioned(adam) @ np.eye(4), last, rtol=1e-6)
    with pytest.raises(ValueError, match="2 groups"):
        preconditioner(adam)
    with pytest.raises(ValueError, match="no second moments"):
        op.preconditioned(torch.optim.SGD(module.parameters(), lr=0.1))


@pytest.mark.parametrize(("rule", "words"), [("Adam", "of parameter 1, of shape"), ("Adadelta", "no second moments")])
def test_what_no_second_moment_divides_is_named(rule, words):
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = getattr(torch.optim, rule)([used, unused])
    used.sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match=words):
        preconditioner(optimizer)


def test_inputs_that_are_not_finite():
    with pytest.raises(ValueError, match="NaN"):
        hessian(torch.nn.Linear(D, 1).double(), None, X * np.nan, np.zeros(N), loss=Mse())


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.full((N, D), "a"), "x holds <U1"),
        (X.tolist(), "x must hold arrays"),
        (None, "x must hold arrays"),
        (X[:0], "x is empty"),
    ],
    ids=["texts", "lists", "nothing", "no_rows"],
)
@pytest.mark.parametrize("make", [hessian, fisher])
def test_inputs_that_are_no_rows_of_numbers(make, x, words):
    y = LABELS if x is None else LABELS[: len(x)]
    with pytest.raises(ValueError, match=words):
        make(torch.nn.Linear(D, K).double(), None, x, *([y] if make is hessian else []), loss=SoftmaxCrossEntropy())


def test_vectors_of_torch_and_trees():
    op = hessian(torch.nn.Linear(D, K).double(), None, X, LABELS, loss=SoftmaxCrossEntropy(), memory="1GB")
    vector = torch.ones(op.shape[0], dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(op @ vector, op @ np.ones(op.shape[0]))
    with pytest.raises(ValueError, match="multiplied with a dict"):
        op @ {"weight": 1.0}


def test_batch_statistics_are_refused_until_they_are_frozen():
    module = torch.nn.Sequential(torch.nn.Linear(D, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, K)).double()
    with pytest.raises(ValueError, match="eval"):
        hessian(module, None, X, LABELS, loss=SoftmaxCrossEntropy())
    assert hessian(module.eval(), None, X, LABELS, loss=SoftmaxCrossEntropy()).shape == (33, 33)
