"""What benchmarks/torch_operators.py times: inputs of a case, what can do it, and what a right result is."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cudamaster.core.expressions import evaluate
from cudamaster.core.values import Precision
from cudamaster.tasks.cards import Case, TaskCard

OURS, LIBRARY, TORCH, NOTE = "ours", "library", "torch", "note"
EMPTY = "empty kernel"
# Root of the mean square of errors over that of the results, at most. TF32 would give 3e-4.
ALLOWED = {Precision.FP32: 2e-5, Precision.BF16: 1e-2}
POWERS_ALLOWED = {Precision.FP32: 1e-4, Precision.BF16: 5e-2}  # whose powers on the way are rounded too
SAMPLED_ROWS = 32
PRODUCTS = ("matrix_mul", "square_matrix_mul", "matrix_power", "high_order_contraction", "matrix_vector_mul",
            "softmax_attention")  # fmt: skip


DRAWN = "drawn"
ORDERS: dict[str, Callable[[Any], Any]] = {
    DRAWN: lambda values: values,
    "ascending": lambda values: values.sort().values,
    "descending": lambda values: values.sort(descending=True).values,
    "equal": lambda values: values[:1].expand_as(values),
    "two values": lambda values: values.sign(),
    "nine of ten equal": lambda values: torch.where(torch.rand_like(values.float()) < 0.9, values[:1], values),
    "extremes": lambda values: extremes(values)[torch.randint(5, values.shape, device=values.device)],
}


def extremes(like: Any) -> Any:
    """The largest and the least normal numbers of a type, of both signs, and zero."""
    limits = torch.finfo(like.dtype)
    return torch.tensor([-limits.max, -limits.tiny, 0, limits.tiny, limits.max], dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Contender:
    """Something to time: `call` runs it once and gives the tensor with the result.

    A `kind` of NOTE does another task than the card's, and is no bar for us. `backend`: of attention. `rounded`: slices
    of a split bf16 product may be rounded before they are added up, which is PyTorch's default. `before` makes the
    inputs of a call that works in place; it is not timed.
    """

    name: str
    kind: str
    call: Callable[[], Any]
    backend: Any = None
    rounded: bool = False
    before: Callable[[], Any] | None = None

    def chosen(self) -> AbstractContextManager[Any]:
        """What a call is made within; entering it is not timed."""
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = self.rounded
        return nullcontext() if self.backend is None else sdpa_kernel(self.backend)


def inputs(card: TaskCard, precision: Precision, case: Case, device: str, order: str = DRAWN) -> dict[str, Any]:
    """Tensors as the card draws them: uniform, with a variance of 1/N for powers, and the mask with its holes. With
    another of ORDERS the numbers of each input are brought into that."""
    kind = {"float": torch.float32, "__nv_bfloat16": torch.bfloat16, "int": torch.int32}
    made: dict[str, Any] = {}
    sizes = case.values
    for parameter in card.parameters:
        if parameter.length is None:
            continue
        length = int(evaluate(parameter.length, sizes))
        tensor = torch.empty(length, dtype=kind[parameter.element_type(precision)], device=device)
        if parameter.name == "attention_mask":
            batches, length = int(sizes["batch_size"]), int(sizes["seq_length"])
            holes = torch.rand(batches, length, length, device=device) < sizes["holes_percent"] / 100
            mask = holes.float().tril(-1) + torch.ones(length, length, device=device).triu(1)
            tensor.copy_(mask.reshape(-1))
        elif parameter.role in ("input", "inout"):
            reach = math.sqrt(3 / sizes["N"]) if card.name == "matrix_power" else 1.0
            tensor.copy_(torch.rand(length, device=device) * (2 * reach) - reach)
            if order != DRAWN:
                tensor.copy_(ORDERS[order](tensor))
        made[parameter.name] = tensor
    return made


def operators(task: str, tensors: dict[str, Any], s: dict[str, Any]) -> Iterator[Contender]:
    """PyTorch's ways to a task, each with what it needs beforehand; in bf16 also with what it may do by default."""
    for one in _operators(task, tensors, s):
        yield one
        if task in PRODUCTS and one.backend is None and next(iter(tensors.values())).dtype == torch.bfloat16:
            yield replace(one, name=f"{one.name}, slices rounded", rounded=True)


def _operators(task: str, tensors: dict[str, Any], s: dict[str, Any]) -> Iterator[Contender]:
    if task in ("matrix_mul", "square_matrix_mul"):
        m, n, k = (s["M"], s["N"], s["K"]) if task == "matrix_mul" else (s["M"],) * 3
        a, b, c = tensors["A"].view(m, k), tensors["B"].view(k, n), tensors["C"].view(m, n)
        yield Contender("torch.mm", TORCH, lambda: torch.mm(a, b, out=c))
    elif task == "matrix_power":
        a, b = (tensors[name].view(s["N"], s["N"]) for name in "AB")
        yield Contender("torch.linalg.matrix_power", TORCH, lambda: torch.linalg.matrix_power(a, s["P"], out=b))
    elif task == "high_order_contraction":
        a = tensors["A"].view(s["a_dim"], s["x_dim"], s["b_dim"], s["y_dim"])
        b = tensors["B"].view(s["x_dim"], s["c_dim"], s["y_dim"])
        yield Contender("torch.einsum", TORCH, lambda: torch.einsum("axby,xcy->abc", a, b))
    elif task == "matrix_vector_mul":
        a, x, y = tensors["A"].view(s["M"], s["N"]), tensors["x"], tensors["y"]
        yield Contender("torch.mv", TORCH, lambda: torch.mv(a, x, out=y))
    elif task == "triangle_attention":
        shape = (s["batch_size"], s["head_num"], s["seq_length"], s["head_dim"])
        q, k, v = (tensors[name].view(shape) for name in ("query", "key", "value"))
        seen = tensors["attention_mask"].view(shape[0], 1, shape[2], shape[2]) <= 0.5
        added = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, -math.inf)
        for form, mask in (("added", added), ("boolean", seen)):
            yield from attention(q, k, v, f", {form} mask", mask)
        yield from attention(q, k, v, ", causal and no mask", None, causal=True)
    elif task == "softmax_attention":
        rows, keys = s["q_seq_len"], s["kv_seq_len"]
        q, k = tensors["Q"].view(rows, s["dim_qk"]), tensors["K"].view(keys, s["dim_qk"])
        v, y = tensors["V"].view(keys, s["dim_v"]), tensors["Y"].view(rows, s["dim_v"])
        scale = 1 / math.sqrt(s["dim_qk"])
        nothing = torch.zeros((), dtype=q.dtype, device=q.device)

        def products() -> Any:
            scores = torch.addmm(nothing, q, k.t(), beta=0, alpha=scale)
            return torch.mm(torch.softmax(scores, dim=-1), v, out=y)

        yield Contender("two products and softmax", TORCH, products)
        if q.dtype == torch.bfloat16:

            def kept() -> Any:
                scores = torch.mm(q, k.t(), out_dtype=torch.float32)
                return torch.mm(torch.softmax(scores.mul_(scale), dim=-1).to(q.dtype), v, out=y)

            yield Contender("two products and softmax, scores in fp32", TORCH, kept)
        yield from attention(q[None, None], k[None, None], v[None, None], "", None)
    elif task in ("conv_1d", "conv_2d"):
        yield from convolutions(task, tensors, s)
    elif task == "sorting":
        data, fresh = tensors["data"], tensors["data"].clone()
        places = torch.empty(fresh.numel(), dtype=torch.int64, device=fresh.device)
        yield Contender("torch.sort", TORCH, lambda: torch.sort(fresh, out=(data, places))[0])
    elif task == "top_k":
        numbers = tensors["input"]
        yield Contender("torch.topk", TORCH, lambda: torch.topk(numbers, s["k"])[0])
    elif task == "prefix_sum":
        numbers, sums = tensors["input"], tensors["output"]
        yield Contender("torch.cumsum", TORCH, lambda: torch.cumsum(numbers, 0, out=sums))
    elif task == "fft" and tensors["input_real"].dtype == torch.float32:  # PyTorch has no transform in bf16
        points = torch.complex(tensors["input_real"], tensors["input_img"])
        yield Contender("torch.fft.fft", TORCH, lambda: torch.fft.fft(points).real)


def convolutions(task: str, tensors: dict[str, Any], s: dict[str, Any]) -> Iterator[Contender]:
    """cuDNN's fastest way, which it looks for in its first call, and a transform of the whole input in fp32."""
    if task == "conv_1d":
        shape, window = (s["input_size"],), (s["kernel_size"],)
    else:
        shape, window = (s["input_rows"], s["input_cols"]), (s["kernel_rows"], s["kernel_cols"])
    image, weights = tensors["input"].view(1, 1, *shape), tensors["kernel"].view(1, 1, *window)
    convolve = torch.nn.functional.conv1d if task == "conv_1d" else torch.nn.functional.conv2d
    torch.backends.cudnn.benchmark = True
    yield Contender("cuDNN", TORCH, lambda: convolve(image, weights))
    valid = tuple(slice(0, n - k + 1) for n, k in zip(shape, window, strict=True))
    flat, taps = image.view(shape), weights.view(window)

    def transformed() -> Any:
        spectrum = torch.fft.rfftn(flat.float())
        spectrum *= torch.fft.rfftn(taps.float(), s=shape).conj()
        return torch.fft.irfftn(spectrum, s=shape)[valid].to(flat.dtype)

    yield Contender("three transforms", TORCH, transformed)


def attention(q: Any, k: Any, v: Any, what: str, mask: Any, causal: bool = False) -> Iterator[Contender]:
    """scaled_dot_product_attention by each of its backends that takes masks, and by the one that does not if it may."""
    backends = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
    if mask is None:
        backends.insert(0, SDPBackend.FLASH_ATTENTION)

    def call() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    for backend in backends:
        name = backend.name.removesuffix("_ATTENTION").lower()
        yield Contender(f"attention by {name}{what}", NOTE if causal else TORCH, call, backend)


def empty_kernel() -> Contender:
    """What a launch takes by the same clocks: a kernel of PyTorch's that waits for no cycles."""
    return Contender(EMPTY, NOTE, lambda: torch.cuda._sleep(0))


def shared_objects(
    folder: Path, card: TaskCard, precision: Precision, tensors: dict[str, Any], sizes: dict[str, Any]
) -> Iterator[Contender]:
    """Our kernel and the libraries' calls: by the wrapper, on the tensors' memory; a library is made ready first."""
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # whose tensor maps our kernels make
    result = tensors[next(p.name for p in card.parameters if p.role in ("output", "inout"))]
    fresh = result.clone()
    in_place = any(p.role == "inout" for p in card.parameters)
    arguments = [
        ctypes.c_void_p(tensors[p.name].data_ptr()) if p.name in tensors else ctypes.c_int(int(sizes[p.name]))
        for p in card.parameters
    ]
    for path in sorted(folder.glob(f"{card.wrapper(precision)}.*.so"), reverse=True):  # ours is the last by name
        name = path.name.split(".", 1)[1].removesuffix(".so")
        loaded = ctypes.CDLL(str(path))
        wrapper = loaded[card.wrapper(precision, optimized=name == OURS)]
        wrapper.restype = None
        if name != OURS:
            shape = [ctypes.c_longlong(int(sizes[p.name])) for p in card.parameters if p.length is None]
            loaded[f"{card.wrapper(precision)}_prepare"](*shape)

        def call(wrapper: Any = wrapper) -> Any:
            wrapper(*arguments)
            return result

        before = (lambda: result.copy_(fresh)) if in_place else None
        yield Contender(name, OURS if name == OURS else LIBRARY, call, before=before)


def reference(task: str, tensors: dict[str, Any], s: dict[str, Any]) -> tuple[Any, Any]:
    """Rows of the result that were drawn, and what they are in fp64, as wide as the last dimension."""

    def drawn(count: int) -> Any:
        device = next(iter(tensors.values())).device
        return torch.randint(count, (min(SAMPLED_ROWS, count),), device=device)

    wide = {name: tensor.double() for name, tensor in tensors.items() if task == "matrix_power" and name == "A"}
    if task in ("matrix_mul", "square_matrix_mul"):
        m, n, k = (s["M"], s["N"], s["K"]) if task == "matrix_mul" else (s["M"],) * 3
        rows = drawn(m)
        return rows, tensors["A"].view(m, k)[rows].double() @ tensors["B"].view(k, n).double()
    if task == "matrix_power":
        matrix = wide["A"].view(s["N"], s["N"])
        rows = drawn(s["N"])
        power = matrix[rows]
        for _ in range(s["P"] - 1):
            power = power @ matrix
        return rows, power
    if task == "high_order_contraction":
        rows = drawn(s["a_dim"] * s["b_dim"])
        a = tensors["A"].view(s["a_dim"], s["x_dim"], s["b_dim"], s["y_dim"])
        left = a[rows // s["b_dim"], :, rows % s["b_dim"], :].double()
        return rows, torch.einsum("rxy,xcy->rc", left, tensors["B"].view(s["x_dim"], s["c_dim"], s["y_dim"]).double())
    if task == "matrix_vector_mul":
        rows = drawn(s["M"])
        return rows, (tensors["A"].view(s["M"], s["N"])[rows].double() @ tensors["x"].double())[:, None]
    if task == "triangle_attention":
        heads, length, dim = s["batch_size"] * s["head_num"], s["seq_length"], s["head_dim"]
        rows = drawn(heads * length)
        q, k, v = (tensors[name].view(heads, length, dim) for name in ("query", "key", "value"))
        head, place = rows // length, rows % length
        scores = torch.einsum("rd,rjd->rj", q[head, place].double(), k[head].double()) / math.sqrt(dim)
        mask = tensors["attention_mask"].view(s["batch_size"], length, length)[head // s["head_num"], place]
        above = torch.arange(length, device=rows.device)[None, :] > place[:, None]
        weights = scores.masked_fill((mask > 0.5) | above, -math.inf).softmax(-1)
        return rows, torch.einsum("rj,rjd->rd", weights, v[head].double())
    if task == "conv_1d":
        rows = drawn(s["output_size"])
        places = rows[:, None] + torch.arange(s["kernel_size"], device=rows.device)
        return rows, (tensors["input"][places].double() @ tensors["kernel"].double())[:, None]
    if task == "conv_2d":
        rows = drawn(s["output_rows"])
        image = tensors["input"].view(s["input_rows"], s["input_cols"])
        windows = image[rows[:, None] + torch.arange(s["kernel_rows"], device=rows.device)].double()
        weights = tensors["kernel"].view(1, s["kernel_rows"], s["kernel_cols"]).double()
        places = windows.unfold(2, s["kernel_cols"], 1)  # rows, kernel rows, output columns, kernel columns
        return rows, torch.einsum("rpjq,pq->rj", places, weights[0])
    if task == "sorting":
        rows = drawn(s["N"])
        return rows, tensors["data"].sort()[0][rows].double()[:, None]
    if task == "top_k":
        rows = drawn(s["k"])
        return rows, tensors["input"].sort(descending=True)[0][rows].double()[:, None]
    if task == "prefix_sum":
        rows = drawn(s["N"])
        return rows, tensors["input"].double().cumsum(0)[rows][:, None]
    if task == "fft":
        rows = drawn(s["N"])
        points = torch.complex(tensors["input_real"].double(), tensors["input_img"].double())
        return rows, torch.fft.fft(points).real[rows][:, None]
    rows = drawn(s["q_seq_len"])
    q, k = tensors["Q"].view(-1, s["dim_qk"])[rows].double(), tensors["K"].view(-1, s["dim_qk"]).double()
    weights = (q @ k.t() / math.sqrt(s["dim_qk"])).softmax(-1)
    return rows, weights @ tensors["V"].view(-1, s["dim_v"]).double()


def error_of(contender: Contender, output: Any, rows: Any, expected: Any) -> float:
    """Root of the mean square of the errors on the sample, over that of the results; the output is poisoned before."""
    output.fill_(math.nan)
    if contender.before is not None:
        contender.before()
    with contender.chosen():
        result = contender.call()
    found = result.reshape(-1, expected.shape[1])[rows].double()
    return float(((found - expected).square().mean() / expected.square().mean()).sqrt())
