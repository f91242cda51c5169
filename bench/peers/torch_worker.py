"""A network of torch_nets.py, trained by PyTorch: a worker for bench/rivals (see worker.py).

Variants are words: `compile` (torch.compile), `channels_last`, `bf16` (torch.autocast). The update is the fused one, gradients are set to None.
"""
import torch
from torch import nn

import worker
from torch_nets import NETWORKS


def optimizer_of(network, model):
    named = dict(model.named_parameters())

    def split(decayed):
        return [p for name, p in named.items() if decayed(name, p)], [p for name, p in named.items() if not decayed(name, p)]

    if network == "mlp":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    if network == "resnet18":
        yes, no = split(lambda name, p: not (name.endswith(".bias") or name.endswith(".bn.weight")))
        groups = [{"params": yes, "weight_decay": 5e-4}, {"params": no, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=0.01, momentum=0.9, nesterov=True, fused=True)
    if network in ("gpt", "gpt2"):
        yes, no = split(lambda name, p: p.dim() == 2 and name != "wpe")
        groups = [{"params": yes, "weight_decay": 0.1}, {"params": no, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-3 if network == "gpt" else 6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    return torch.optim.Adam(model.parameters(), lr=0.002, fused=True)


def load(model, path):
    rename = getattr(model, "names", lambda name: name)
    given = {rename(name): torch.from_numpy(array) for name, array in worker.parameters(path).items()}
    missing, unexpected = model.load_state_dict(given, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise ValueError(f"not the same network: missing {missing[:5]}, unexpected {unexpected[:5]}")


def main():
    imported = worker.peak()
    the = worker.task()
    torch.set_num_threads(the.threads)
    torch.manual_seed(1)
    model = NETWORKS[the.network](the.sizes, the.rate)
    load(model, the.weights)
    inputs, labels = (torch.from_numpy(part) for part in worker.batch(the))
    inputs, labels = inputs.long() if inputs.dtype == torch.int32 else inputs, labels.long()
    if "channels_last" in the.variant:
        model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    optimizer = optimizer_of(the.network, model)
    clip = the.network in ("gpt", "lstm")
    forward = torch.compile(model) if "compile" in the.variant else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in the.variant):
            loss = forward(inputs, labels)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    worker.serve(step, imported)


main()
