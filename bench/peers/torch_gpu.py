"""GPT-2 of torch_nets.py in bf16, and in f32 with products in tf32, on a GPU, and PyTorch's products and attention of its sizes: the rival of bench/gpu.

usage: torch_gpu.py SIZES      a JSON object with B, T, V, N, D, A. It compiles at once. Then orders are lines of standard input, and answers lines of
standard output, in JSON: `ready`; `compile`, `eager`, `compile_tf32`, `eager_tf32` (seconds of a step, most bytes that were allocated); `kernels` (microseconds of each).
"""
import json
import sys

import torch
import torch.nn.functional as F

from torch_nets import Gpt2

sizes = json.loads(sys.argv[1])
B, T, V, D, A = (sizes[name] for name in "BTVDA")
WARM, STEPS = 5, 20
torch.set_float32_matmul_precision("high") # products of f32 in tf32


def network():
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Gpt2(sizes, 0.1)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                torch.nn.init.normal_(parameter, std=0.02)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and name != "wpe"]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or name == "wpe"]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def batch():
    tokens = torch.randint(0, V, (B, T + 1), device="cuda")
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def step(model, forward, optimizer, inputs, labels, narrow=True):
    """`narrow`: in bf16."""
    with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        loss = forward(inputs, labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def seconds(call, warm, count):
    """Of the median of `count` calls, by events of the device."""
    for _ in range(warm):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))[count // 2] / 1e3


def steps(model, forward, optimizer, narrow=True):
    torch.cuda.reset_peak_memory_stats()
    inputs, labels = batch()
    taken = seconds(lambda: step(model, forward, optimizer, inputs, labels, narrow), WARM, STEPS)
    return {"seconds": taken, "bytes": torch.cuda.max_memory_allocated()}


def products():
    """(name, rows, columns, k) of y = x w and of its two gradients, for each product of GPT-2."""
    rows = B * T
    for name, width, k in (("c_attn", 3 * D, D), ("c_proj", D, D), ("c_fc", 4 * D, D), ("ff.c_proj", D, 4 * D), ("logits", V, D)):
        yield name + " y", rows, width, k
        yield name + " dx", rows, k, width
        yield name + " dw", width, k, rows


def kernels():
    """Operands lie as the network has them: y reads w [width, k] turned, dw reads both turned."""
    taken = {}
    for name, m, n, k in products():
        kind = name.split()[-1]
        x = torch.randn((k, m) if kind == "dw" else (m, k), device="cuda").bfloat16()
        w = torch.randn((n, k) if kind == "y" else (k, n), device="cuda").bfloat16()
        x, w = x.t() if kind == "dw" else x, w.t() if kind == "y" else w
        taken["%s %dx%dx%d" % (name, m, n, k)] = seconds(lambda: x @ w, 3, 10) * 1e6
        del x, w
    for rate in (0.0, 0.1):
        q, k, v = (torch.randn((B, A, T, D // A), device="cuda").bfloat16().requires_grad_() for _ in range(3))
        forward = lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        y = forward()
        slope = torch.randn_like(y)
        ahead = seconds(forward, 3, 10)
        both = seconds(lambda: torch.autograd.grad(forward(), (q, k, v), slope), 3, 10)
        taken["attention, dropout %g, forward" % rate], taken["attention, dropout %g, backward" % rate] = ahead * 1e6, (both - ahead) * 1e6
    return taken


def main():
    model, optimizer = network()
    forward = torch.compile(model)
    inputs, labels = batch()
    step(model, forward, optimizer, inputs, labels)
    torch.cuda.synchronize()
    for order in sys.stdin:
        order = order.strip()
        answer = {"ready": lambda: {"ready": True}, "compile": lambda: steps(model, forward, optimizer), "eager": lambda: steps(model, model, optimizer),
                  "compile_tf32": lambda: steps(model, forward, optimizer, False), "eager_tf32": lambda: steps(model, model, optimizer, False),
                  "kernels": kernels}[order]()
        print(json.dumps(answer), flush=True)
        torch.cuda.empty_cache()


main()
