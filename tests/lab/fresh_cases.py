"""Cases of the reference vocabulary that were never shipped: every word and option that the shipped ones leave out."""

import zlib

import jax
import numpy as np

from lab import vocabulary_oracle

RELU, ERF, FLAT, GAP = ({"type": t} for t in ("relu", "erf", "flatten", "global_avg_pool"))


def dense(width=1, w=1.1, b=0.2, **more):
    return {"type": "dense", "width": width, "W_std": w, "b_std": b, **more}


def conv(window, kind="conv", width=1, **more):
    return {"type": kind, "width": width, "filter": window, "W_std": 1.2, "b_std": 0.1, **more}


def branches(merge, *parts):
    return {"type": "branches", "merge": merge, "branches": list(parts)}


def attention(mechanism="SOFTMAX", **more):
    stds = {"W_key_std": 0.9, "W_query_std": 0.8, "W_value_std": 1.1, "W_out_std": 1.2, "b_std": 0.1}
    return {"type": "attention", "mechanism": mechanism, **stds, **more}


STANDARD = {"parameterization": "standard"}

WITHOUT_SITES = {
    "mixed_parametrizations": [dense(8, **STANDARD), RELU, dense(16), RELU, dense(1, **STANDARD)],
    "defaults": [{"type": "dense", "width": 1}, RELU, {"type": "dense", "width": 3}],
    "width_scales": [
        dense(8, **STANDARD, s=[2, 3]),
        RELU,
        dense(4, **STANDARD, s=[3, 2]),
        ERF,
        dense(1, s=[2, 1], **STANDARD),
    ],
    "width_scales_ntk": [dense(8, s=[1, 3]), RELU, dense(1, s=[3, 1])],
    "concat_with_skip": [dense(8), branches("concat", [], [RELU, dense(24)]), dense()],
    "concat_of_input": [branches("concat", [], [dense(3), RELU]), dense()],
    "concat_shared": [dense(8), branches("concat", [RELU], [ERF], []), dense()],
    "concat_standard": [
        dense(8, **STANDARD),
        branches("concat", [RELU, dense(5, **STANDARD)], [dense(7, **STANDARD)]),
        dense(1, **STANDARD),
    ],
    "product_of_three": [dense(), branches("prod", [], [RELU, dense()], [dense(b=None)]), dense()],
    "nested": [
        dense(),
        branches("sum", [], [branches("sum", [RELU, dense()], [ERF, dense(w=0.7)]), ERF, dense()]),
        RELU,
        dense(),
    ],
    "nested_mixed": [
        dense(),
        branches("sum", [branches("prod", [dense()], [RELU, dense()]), dense()], [dense()]),
        RELU,
        dense(),
    ],
    "mixed_widths_sum": [dense(5), branches("sum", [RELU, dense(7)], [ERF, dense(9)]), RELU, dense(2)],
    "ends_in_relu": [dense(), RELU],
    "only_relu_layers": [dense(), {"type": "scale", "c": -1.5}, RELU, {"type": "scale", "c": 2}, dense()],
    "exp_normalized": [dense(), {"type": "exp_normalized", "gamma": 1.3, "shift": -0.5}, dense()],
    "layernorm_eps": [dense(), {"type": "layernorm", "axes": [1], "eps": 0.3}, RELU, dense()],
    "dropout_before_dense": [dense(), {"type": "dropout", "rate": 0.5}, dense(), RELU, dense()],
}

ON_A_LINE = {
    "conv_defaults": [{"type": "conv", "width": 1, "filter": [2]}, RELU, FLAT, dense()],
    "conv_circular_stride": [conv([3], padding="CIRCULAR", strides=[2]), RELU, GAP, dense()],
    "conv_circular_even": [conv([4], padding="CIRCULAR"), RELU, conv([2], padding="CIRCULAR")],
    "conv_standard_scales": [
        conv([3], width=4, **STANDARD, s=[1, 2], padding="SAME"),
        RELU,
        conv([2], width=6, **STANDARD, s=[2, 3]),
        RELU,
        GAP,
        dense(1, s=[3, 1], **STANDARD),
    ],
    "flatten_standard": [conv([3], width=4, **STANDARD), RELU, FLAT, dense(3, **STANDARD), RELU, dense(1, **STANDARD)],
    "pool_defaults": [conv([2]), RELU, {"type": "avg_pool", "window": [3]}, dense(), RELU, FLAT, dense()],
    "pool_same": [
        conv([2]),
        RELU,
        {"type": "sum_pool", "window": [3], "strides": [2], "padding": "SAME"},
        FLAT,
        dense(),
    ],
    "pool_circular": [conv([2]), RELU, {"type": "avg_pool", "window": [3], "padding": "CIRCULAR"}, FLAT, dense()],
    "sum_pool_defaults": [conv([2]), RELU, {"type": "sum_pool", "window": [2]}, dense()],
    "local_stride": [
        conv([3], "conv_local", strides=[2], padding="SAME"),
        RELU,
        conv([2], "conv_local"),
        RELU,
        GAP,
        dense(),
    ],
    "local_standard": [conv([3], "conv_local", width=4, **STANDARD), RELU, FLAT, dense(1, **STANDARD)],
    "local_no_readout": [conv([2]), RELU, conv([3], "conv_local")],
    "transpose_wide_stride": [conv([2], "conv_transpose", strides=[3], padding="SAME"), RELU, GAP, dense()],
    "transpose_wide_stride_valid": [conv([2], "conv_transpose", strides=[3], padding="VALID"), RELU, FLAT, dense()],
    "transpose_standard": [
        conv([3], "conv_transpose", width=3, strides=[2], **STANDARD),
        RELU,
        FLAT,
        dense(1, **STANDARD),
    ],
    "index_last": [conv([2]), RELU, {"type": "index", "idx": [[None], -1]}, dense(), RELU, dense()],
    "index_backwards": [
        conv([2]),
        RELU,
        {"type": "index", "idx": [[None], [None, None, -2]]},
        conv([2]),
        RELU,
        GAP,
        dense(),
    ],
    "index_explicit_channels": [conv([2]), RELU, {"type": "index", "idx": [[None], [1, 4], [None]]}, FLAT, dense()],
    "contract_the_line": [
        conv([2]),
        RELU,
        {"type": "dot_general_rhs", "axis": 1, "rhs": [0.5, -1, 2, 0, 1]},
        dense(),
        RELU,
        dense(),
    ],
    "map_the_line": [
        conv([2]),
        RELU,
        {"type": "dot_general_rhs", "axis": 1, "rhs": [[1, 0], [0.5, 1], [2, 0], [0, -1], [1, 1]]},
        dense(),
        RELU,
        GAP,
        dense(),
    ],
    "attention_abs": [dense(), attention("ABS"), RELU, FLAT, dense()],
    "attention_relu": [dense(), attention("RELU", pos_emb="SUM"), RELU, GAP, dense()],
    "attention_identity": [dense(), attention("IDENTITY", linear_scaling=True), RELU, GAP, dense()],
    "attention_sqrt": [dense(), attention("IDENTITY", linear_scaling=False), GAP, dense()],
    "attention_concat": [
        dense(5),
        attention(pos_emb="CONCAT", n_chan_pos_emb=3, decay="inv1", p_norm=1),
        RELU,
        FLAT,
        dense(),
    ],
    "attention_rate": [dense(), attention(pos_emb="SUM", decay=0.3, W_pos_emb_std=1.4), RELU, GAP, dense()],
    "attention_exp_half": [
        dense(),
        attention("RELU", pos_emb="SUM", decay="exp_half", p_norm=1, val_pos_emb=True),
        RELU,
        FLAT,
        dense(),
    ],
    "attention_concat_default": [dense(5), attention(pos_emb="CONCAT", W_pos_emb_std=1.3), RELU, FLAT, dense()],
    "attention_value_positions": [
        dense(),
        RELU,
        dense(),
        attention(pos_emb="SUM", decay="inv1", val_pos_emb=True, W_pos_emb_std=0.6),
        RELU,
        GAP,
        dense(),
    ],
    "attention_value_concat": [
        dense(4),
        attention(pos_emb="CONCAT", n_chan_pos_emb=2, val_pos_emb=True),
        RELU,
        GAP,
        dense(),
    ],
    "attention_on_input": [attention(), RELU, FLAT, dense()],
    "attention_no_readout": [dense(), attention("SOFTMAX", b_std=None)],
    "attention_standard_readout": [dense(6, **STANDARD), attention(), RELU, FLAT, dense(1, **STANDARD)],
    "layernorm_sites": [conv([2]), {"type": "layernorm", "axes": [1, -1], "eps": 1e-6}, RELU, GAP, dense()],
    "residual_conv": [
        conv([3], padding="SAME"),
        branches("sum", [], [RELU, conv([3], padding="SAME")]),
        RELU,
        FLAT,
        dense(),
    ],
    "concat_conv": [
        conv([3], width=4),
        branches("concat", [RELU, conv([1], width=6)], []),
        conv([2]),
        RELU,
        GAP,
        dense(),
    ],
    "dropout_line": [conv([2]), RELU, {"type": "dropout", "rate": 0.8}, conv([2]), RELU, GAP, dense()],
    "global_sum": [conv([2]), RELU, {"type": "global_sum_pool"}, dense()],
    "ends_in_pool": [conv([2]), RELU, GAP],
    "ends_in_flatten": [conv([2]), RELU, FLAT],
    "scale_sites": [conv([2]), {"type": "scale", "c": 0.4}],
}

ON_A_GRID = {
    "layernorm_one_site_axis": [conv([2, 2]), {"type": "layernorm", "axes": [2, 3], "eps": 1e-3}, RELU, GAP, dense()],
    "resize_nearest": [
        conv([2, 2]),
        RELU,
        {"type": "image_resize", "shape": [-1, 5, -1, -1], "method": "nearest"},
        conv([2, 2]),
        RELU,
        FLAT,
        dense(),
    ],
    "resize_down": [conv([2, 2]), RELU, {"type": "image_resize", "shape": [-1, 2, 3, -1], "method": "linear"}],
    "index_a_row": [
        conv([2, 2]),
        RELU,
        {"type": "index", "idx": [[None], 0, [None, None, 2]]},
        conv([2]),
        RELU,
        FLAT,
        dense(),
    ],
    "contract_columns": [
        conv([2, 2]),
        RELU,
        {"type": "dot_general_rhs", "axis": 2, "rhs": [1, -2, 1, 0.5]},
        dense(),
        RELU,
        FLAT,
        dense(),
    ],
    "attention_grid": [dense(), attention(pos_emb="SUM", decay="inv1", p_norm=1), RELU, GAP, dense()],
    "aggregate_both": [dense(), RELU, {"type": "aggregate", "axes": [1, 2]}, dense(), RELU, FLAT, dense()],
    "aggregate_rows": [dense(), RELU, {"type": "aggregate", "axes": [1]}, dense(), ERF],
    "aggregate_reversed": [dense(), RELU, {"type": "aggregate", "axes": [2, 1]}, dense(), RELU, GAP, dense()],
    "mixed_windows": [
        conv([3, 1], strides=[1, 2], padding="SAME"),
        RELU,
        conv([1, 2], "conv_transpose", strides=[2, 1]),
        RELU,
        GAP,
        dense(),
    ],
    "local_grid": [
        conv([2, 3], "conv_local", padding="CIRCULAR"),
        RELU,
        {"type": "avg_pool", "window": [2, 1], "strides": [1, 2], "padding": "SAME", "normalize_edges": True},
        FLAT,
        dense(),
    ],
}

MASKED = {
    "mask_flatten": [conv([3], padding="SAME"), RELU, FLAT, dense()],
    "mask_erf_dense": [dense(), ERF, dense(), RELU, GAP, dense()],
    "mask_global_sum": [conv([3], padding="SAME"), RELU, {"type": "global_sum_pool"}, dense()],
    "mask_residual": [
        conv([3], padding="SAME"),
        branches("sum", [], [RELU, conv([3], padding="SAME")]),
        RELU,
        GAP,
        dense(),
    ],
    "mask_no_readout": [conv([3], padding="SAME"), RELU, dense()],
}

SYMMETRIC = (
    "dropout_before_dense",
    "dropout_line",
    "concat_shared",
    "attention_abs",
    "attention_no_readout",
    "local_grid",
)


def _resize_matrices(layers, sites):
    for layer in layers:
        if layer["type"] == "image_resize":
            new = enumerate(zip(sites, layer["shape"][1:-1], strict=True))
            with jax.enable_x64(True):
                resize = lambda n, m, how=layer["method"]: np.asarray(jax.image.resize(np.eye(n), (m, n), how))
                return {axis: resize(n, m) for axis, (n, m) in new if m != -1}
    return None


def fresh_case(name, layers, shape, *, symmetric=False, mask=None):
    """A case and its arrays, computed by the oracle."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x1, x2 = rng.normal(size=(3, *shape)), None if symmetric else rng.normal(size=(2, *shape))
    if mask is not None:
        x1[1, -2:], x2[0, 1] = mask, mask
    arrays, patterns = {"x1": x1} | ({} if symmetric else {"x2": x2}), None
    aggregated = [[shape[a - 1] for a in s["axes"]] for s in layers if s["type"] == "aggregate"]
    if aggregated:
        nodes = aggregated[0]
        patterns = [rng.normal(size=(n, *nodes, *nodes)) for n in (3, 2)]
        arrays |= {"pattern1": patterns[0], "pattern2": patterns[1]}
    matrices = _resize_matrices(layers, [s - 1 for s in shape[:-1]])
    nngp, ntk = vocabulary_oracle.kernels(layers, x1, x2, mask_constant=mask, patterns=patterns, matrices=matrices)
    arrays |= {"nngp": nngp, "ntk": ntk}
    case = {"id": name, "kind": "kernel", "input_shape": list(shape), "n1": 3, "n2": None if symmetric else 2}
    case |= {"layers": layers, "rtol": 1e-6 if symmetric else 1e-9} | ({} if mask is None else {"mask_constant": mask})
    return case, {f"{name}/{key}": value for key, value in arrays.items()}


def all_cases():
    """Every fresh case by name: `(case, arrays)`, computed when it is asked for."""
    line, grid = (6, 2), (4, 5, 2)
    groups = ((WITHOUT_SITES, (5,), None), (ON_A_LINE, line, None), (ON_A_GRID, grid, None), (MASKED, line, 50.0))
    out = {}
    for group, shape, mask in groups:
        for name, layers in group.items():
            out[name] = lambda n=name, la=layers, s=shape, m=mask: fresh_case(n, la, s, mask=m)
            if name in SYMMETRIC:
                out[f"{name}_symmetric"] = lambda n=name, la=layers, s=shape: fresh_case(n, la, s, symmetric=True)
    return out
