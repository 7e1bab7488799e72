"""Operator sequences of language models."""

import numpy as np
from scipy import special

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def softmax_attention(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    q = buffers["Q"].reshape(sizes["q_seq_len"], sizes["dim_qk"])
    k = buffers["K"].reshape(sizes["kv_seq_len"], sizes["dim_qk"])
    v = buffers["V"].reshape(sizes["kv_seq_len"], sizes["dim_v"])
    return flat(Y=special.softmax(q @ k.T / np.sqrt(sizes["dim_qk"]), axis=1) @ v)


def triangle_attention(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    batch, sequence, dim = sizes["batch_size"], sizes["seq_length"], sizes["head_dim"]
    shape = (batch, sizes["head_num"], sequence, dim)
    query, key, value = (buffers[name].reshape(shape) for name in ("query", "key", "value"))
    mask = buffers["attention_mask"].reshape(batch, 1, sequence, sequence)
    allowed = (mask <= 0.5) & np.tri(sequence, dtype=bool)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(dim)
    weights = special.softmax(np.where(allowed, scores, -np.inf), axis=-1)
    return flat(output=weights @ value)


def merge_attn_states(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    tokens, heads = sizes["num_tokens"], sizes["num_heads"]
    values = np.stack([buffers["V_a"], buffers["V_b"]]).reshape(2, tokens, heads, sizes["head_size"])
    lse = np.stack([buffers["lse_a"], buffers["lse_b"]]).reshape(2, heads, tokens)
    shares = special.softmax(lse, axis=0)
    return flat(V_out=np.einsum("sht,sthd->thd", shares, values), LSE_out=special.logsumexp(lse, axis=0))


def swiglu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    gate = buffers["gate_input"]
    return flat(output=gate * special.expit(sizes["beta"] * gate) * buffers["value_input"])


def silu_and_mul(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x, gate = np.split(buffers["input"].reshape(sizes["B"], 2 * sizes["D"]), 2, axis=1)
    return flat(out=x * special.expit(x) * gate)


def rope(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    m, d = sizes["M"], sizes["D"]
    pairs = buffers["input"].reshape(m, d // 2, 2)
    angles = np.outer(np.arange(m), float(sizes["base"]) ** (-2 * np.arange(d // 2) / d))
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    return flat(output=np.stack([turned.real, turned.imag], axis=-1))


ORACLES: dict[str, Oracle] = {
    "softmax_attention": softmax_attention,
    "triangle_attention": triangle_attention,
    "merge_attn_states": merge_attn_states,
    "swiglu": swiglu,
    "silu_and_mul": silu_and_mul,
    "rope": rope,
}
