"""PyTorch modules that do more than their graph of calls shows: read as they compute, or refused."""

import warnings

import jax
import numpy as np
import pytest

import everwide as ew
from everwide import ArchitectureError

torch = pytest.importorskip("torch")
nn = torch.nn

from translation.draws import rows  # noqa: E402 - where there is torch
from translation.test_torch_refusals import Module, two  # noqa: E402

pytestmark = pytest.mark.wide


def hooked(layer):
    layer.register_forward_hook(lambda own, read, made: 2 * made)
    return layer


def by_hooks(norm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and people have it
        return norm(nn.Linear(8, 2))


def overwritten(m, x):
    x = m.a(x)
    x[:, :4].relu_()
    return m.b(x)


def bias_only(layer):
    layer.weight.requires_grad_(False)
    return layer


def without_gradients(m, x):
    with torch.no_grad():
        x = m.a(x)
    return m.b(torch.relu(x))


def attention(**options):
    return nn.MultiheadAttention(8, 2, batch_first=True, **options)


def encoder(activation):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation).eval()


class Feed(nn.TransformerEncoderLayer):
    """Another forward than the one it is named after."""

    def forward(self, src, src_mask=None, is_causal=False, src_key_padding_mask=None):
        return 2 * src


def tied(one, two, name):
    setattr(two, name, getattr(one, name))
    return two


FIRST = nn.Linear(6, 8)
REFUSED = {
    "a bias that is used twice": (
        Module(lambda m, x: m.a(x) + m.b(x), a=FIRST, b=tied(FIRST, nn.Linear(6, 8), "bias")),
        (6,),
        "it has the biases.* of a: .*used twice",
    ),
    "hooks": (
        two(lambda m, x: m.h(m.a(x)), h=hooked(nn.Linear(8, 2))),
        (6,),
        r"h \(Linear\) has forward hooks.*remove",
    ),
    "weight norm by hooks": (
        two(lambda m, x: m.w(m.a(x)), w=by_hooks(nn.utils.weight_norm)),
        (6,),
        r"w \(Linear\) has forward hooks.*remove_weight_norm",
    ),
    "spectral norm by hooks": (
        two(lambda m, x: m.w(m.a(x)), w=by_hooks(nn.utils.spectral_norm)),
        (6,),
        r"w \(Linear\) has forward hooks",
    ),
    "gradients that are stopped": (
        two(lambda m, x: m.b(m.a(x).detach())),
        (6,),
        "detach.*stops gradients.*frozen=True",
    ),
    "no gradients": (two(without_gradients), (6,), r"a \(Linear.*stops gradients.*requires_grad_\(False\)"),
    "a bias that is trained alone": (
        two(lambda m, x: m.c(m.a(x)), c=bias_only(nn.Linear(8, 2))),
        (6,),
        "some of its parameters are trained and others are not",
    ),
    "a part that is overwritten": (two(overwritten), (6,), "a part was overwritten in place"),
    "dropout of attention": (
        two(lambda m, x: m.m(*[m.a(x)] * 3)[0], m=attention(dropout=0.3)),
        (5, 6),
        "dropout of attention.*module.eval",
    ),
    "an encoder of other layers": (
        two(
            lambda m, x: m.e(m.a(x)),
            e=nn.TransformerEncoder(Feed(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False),
        ),
        (5, 6),
        "e.layers.0 is a Feed, which is not one of torch.nn",
    ),
    "an encoder with parametrized layers": (
        two(lambda m, x: m.e(m.a(x)), e=encoder("relu")),
        (5, 6),
        "its weights are parametrized",
    ),
    "an activation of one's own in an encoder": (
        two(lambda m, x: m.e(m.a(x)), e=encoder(lambda x: x.sin())),
        (5, 6),
        "its activation <lambda> is not read",
    ),
    "an axis that is no channel": (
        Module(lambda m, x: m.c(x.unsqueeze(1)), c=nn.Conv1d(1, 3, 3)),
        (6,),
        "give it in input_shape, with the size 1",
    ),
    "a table that is one number": (
        Module(lambda m, x: m.a(x) + m.p, a=nn.Linear(6, 8), p=nn.Parameter(torch.ones(1, 5, 8))),
        (5, 6),
        "p, which is 1 everywhere: .*drawn around zero",
    ),
    "means that reach beyond the sites": (
        Module(lambda m, x: nn.functional.avg_pool2d(m.c(x), 2, ceil_mode=True), c=nn.Conv2d(3, 3, 1)),
        (3, 4, 5),
        "beyond the sites",
    ),
    "sums that are called means": (
        Module(lambda m, x: nn.functional.avg_pool2d(m.c(x), 2, divisor_override=1), c=nn.Conv2d(3, 3, 1)),
        (3, 4, 4),
        "divisor_override",
    ),
    "windows over channels": (two(lambda m, x: m.p(m.a(x)), p=nn.MaxPool1d(3, 1, 1)), (6,), "slides over the 1 behind"),
    "a call of windows over channels": (
        two(lambda m, x: nn.functional.avg_pool1d(m.a(x), 2)),
        (6,),
        "slides over the 1",
    ),
    "numbers that are rounded": (two(lambda m, x: m.a(x).to(torch.int32).float()), (6,), "rounds a signal"),
    "channels of each frame": (
        Module(lambda m, x: m.n(m.a(x).permute(0, 1, 3, 2).flatten(0, 1)), a=nn.Linear(6, 8), n=nn.InstanceNorm1d(8)),
        (3, 4, 6),
        "merged with the examples",
    ),
    "groups of places": (
        Module(lambda m, x: m.n(m.a(x)), a=nn.Linear(6, 8), n=nn.GroupNorm(2, 4)),
        (4, 6),
        "its groups are those of axis 1",
    ),
    "a piece in the middle of the channels": (
        two(lambda m, x: m.a(x).view(-1, 2, 2, 2)[:, :, 0]),
        (6,),
        "only single site axes can be indexed",
    ),
    "a factor that is not whole": (
        Module(lambda m, x: nn.functional.interpolate(m.c(x), scale_factor=1.3), c=nn.Conv2d(3, 3, 1)),
        (3, 4, 3),
        "not whole numbers.*recompute_scale_factor",
    ),
    "a resize that is smoothed": (
        Module(
            lambda m, x: nn.functional.interpolate(m.c(x), size=(2, 2), mode="bilinear", antialias=True),
            c=nn.Conv2d(3, 3, 1),
        ),
        (3, 4, 3),
        "antialias=True is not read",
    ),
}
nn.utils.parametrizations.weight_norm(REFUSED["an encoder with parametrized layers"][0].e.linear1)


@pytest.mark.parametrize("name", REFUSED)
def test_torch_modules_that_do_more_than_they_show(name):
    module, shape, message = REFUSED[name]
    with pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(module, shape)


def test_torch_biases_that_are_one_number_are_not_drawn_around_zero():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.xavier_normal_(module[0].weight)
    ew.from_module(module, (6,), variances="measured")
    nn.init.constant_(module[0].bias, 0.1)
    with pytest.raises(ArchitectureError, match=r"0\.bias is 0\.1 everywhere.*around zero"):
        ew.from_module(module, (6,), variances="measured")
    nn.init.zeros_(module[0].bias)
    nn.init.eye_(module[0].weight)
    with pytest.raises(ArchitectureError, match=r"0\.weight is 1 wherever it is not 0"):
        ew.from_module(module, (6,), variances="measured")
    nn.init.normal_(module[0].weight, mean=1.0)
    with pytest.raises(ArchitectureError, match=r"0\.weight has the mean"):
        ew.from_module(module, (6,), variances="measured")


def test_torch_zeros_are_no_draw_however_few_they_are():
    module = nn.Sequential(nn.Linear(2, 28), nn.Tanh(), nn.Linear(28, 10))
    nn.init.zeros_(module[0].bias)
    with pytest.raises(ArchitectureError, match=r"0\.bias is 0 everywhere"):
        ew.from_module(module, (2,))
    head = nn.Linear(20, 1)
    nn.init.zeros_(head.weight)
    with pytest.raises(ArchitectureError, match="weight is 0 everywhere"):
        ew.from_module(nn.Sequential(head), (20,))


def test_torch_a_single_output_may_be_a_number():
    heads = (lambda y: y.squeeze(-1), lambda y: y[:, 0], torch.flatten)
    for head in heads:
        module = Module(lambda m, x, head=head: head(m.h(torch.relu(m.a(x)))), a=nn.Linear(6, 8), h=nn.Linear(8, 1))
        limit = ew.from_module(module, (6,))
        assert [type(one).__name__ for one in limit.net.layers] == ["Dense", "Relu", "Dense"]
        assert ew.nngp(limit.net, rows((6,))).shape == (3, 3)


def test_torch_means_that_are_not_rounded_up_are_plain():
    plain, rounded = (nn.Sequential(nn.Conv2d(3, 3, 1), nn.AvgPool2d(2, ceil_mode=up)) for up in (False, True))
    assert ew.from_module(rounded, (3, 4, 6)).net == ew.from_module(plain, (3, 4, 6)).net


def test_torch_places_may_be_counted_in_the_call():
    module = Module(lambda m, x: m.a(x) + m.p(torch.arange(5)), a=nn.Linear(6, 8), p=nn.Embedding(5, 8))
    limit = ew.from_module(module, (5, 6))
    assert [str(row.outcome) for row in limit.rows if row.place == "p"] == ["exact"]


def overwrites(m, x):
    """Of which all numbers are new: the skip is rectified too, as it is in PyTorch."""
    x = m.a(x)
    return m.b(m.r(x)) + x


def adds_to_an_alias(m, x):
    x = m.a(x)
    same = x
    x += m.b(torch.relu(x))
    return same * 2


def twice_the_channels(m, x):
    x = m.a(x)
    return m.b(torch.relu(x[:, 2:][:, :4]) - x[:, 2:6])


def pieces(m, x):
    x = m.a(x)
    parts = x.view(-1, 2, 2, 2).permute(1, 0, 2, 3)
    return m.b(parts[0].reshape(-1, 4) - parts[1].reshape(-1, 4))


def decides(m, x):
    assert x.shape[1] == 6
    return m.b(torch.relu(m.a(x))) if x.shape[1] > 5 else x


def squeezes(m, x):
    scale = torch.sigmoid(m.b(x.mean((2, 3)))).view(-1, 3, 1, 1)
    return m.c(x) * (scale.expand_as(x) if m.expands else scale)


def up(mode, **how):
    return nn.Upsample(scale_factor=2, mode=mode, **how)


COMPUTED = {
    "a residual of the input": (Module(lambda m, x: x + m.c(x), c=nn.Conv2d(3, 3, 1)), (3, 4, 3)),
    "in place": (two(overwrites, r=nn.ReLU(inplace=True)), (6,)),
    "an alias": (two(adds_to_an_alias), (6,)),
    "slices of slices": (Module(twice_the_channels, a=nn.Linear(6, 8), b=nn.Linear(4, 3)), (6,)),
    "pieces": (Module(pieces, a=nn.Linear(6, 8), b=nn.Linear(4, 3)), (6,)),
    "conditions on shapes": (two(decides), (6,)),
    "a factor for all sites": (
        Module(squeezes, b=nn.Linear(3, 3), c=nn.Conv2d(3, 3, 1), expands=True),
        (3, 4, 4),
    ),
    "a factor without repeating": (
        Module(squeezes, b=nn.Linear(3, 3), c=nn.Conv2d(3, 3, 1), expands=False),
        (3, 4, 4),
    ),
    "nearest": (nn.Sequential(nn.Conv2d(3, 3, 1), up("nearest")), (3, 4, 3)),
    "bilinear": (nn.Sequential(nn.Conv2d(3, 3, 1), up("bilinear")), (3, 4, 3)),
    "aligned": (nn.Sequential(nn.Conv2d(3, 3, 1), up("bilinear", align_corners=True)), (3, 4, 3)),
    "a size": (
        Module(lambda m, x: nn.functional.interpolate(m.c(x), size=(7, 5), mode="bilinear"), c=nn.Conv2d(3, 3, 1)),
        (3, 4, 3),
    ),
    "the largest of a sequence": (Module(lambda m, x: m.a(x).max(dim=1)[0], a=nn.Linear(6, 8)), (5, 6)),
    "the largest, by name": (Module(lambda m, x: m.a(x).max(1).values, a=nn.Linear(6, 8)), (5, 6)),
    "the largest of an image": (Module(lambda m, x: m.c(x).amax((2, 3)), c=nn.Conv2d(3, 4, 1)), (3, 4, 3)),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_torch_the_network_computes_what_the_module_computes(name):
    """With the weights of the module, layer by layer in the order of its parameters."""
    module, shape = COMPUTED[name]
    limit = ew.from_module(module, shape)
    drawn = limit.net.init(jax.random.key(0), limit.input_shape, parametrization="standard")
    params = with_weights(drawn, module)
    x = rows(shape, n=2)
    y = jax.vmap(lambda one: limit.net.apply(params, one))(limit.examples(x))
    with torch.no_grad():
        expected = module(torch.as_tensor(x)).numpy()
    y = np.moveaxis(np.asarray(y), -1, 1) if expected.ndim > 2 else np.asarray(y)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def with_weights(params, module):
    """Those of the module, which has one layer for every shape of weights."""
    own = {}
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            weight = layer.weight.detach().numpy()
            order = (2, 3, 1, 0) if weight.ndim == 4 else (1, 0)
            own[weight.transpose(order).shape] = weight.transpose(order), layer.bias.detach().numpy()

    def put(affine):
        weight, bias = own[affine.weight.shape]
        return type(affine)(jax.numpy.asarray(weight), jax.numpy.asarray(bias), affine.fans)

    is_affine = lambda part: type(part).__name__ == "Affine"
    return jax.tree.map(lambda part: put(part) if is_affine(part) else part, params, is_leaf=is_affine)
