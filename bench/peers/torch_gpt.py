"""A byte-level GPT in PyTorch, the same network and update as bench/models/gpt.cinch, as a worker for bench/gpt (see worker.py).

Written the way that is fast on CPUs: one product for queries, keys and values, fused attention, the fused AdamW, gradients set to None.
"""
import torch
import torch.nn.functional as F
from torch import nn

from worker import options, serve


class Block(nn.Module):
    def __init__(self, width, heads, rate):
        super().__init__()
        self.heads, self.rate = heads, rate
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(rate)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.rate, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.drop(self.attention(self.ln1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))


class GPT(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(sizes.length, sizes.width)
        self.drop = nn.Dropout(sizes.rate)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads, sizes.rate) for _ in range(sizes.layers))
        self.lnf = nn.LayerNorm(sizes.width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)
        for block in self.blocks:
            for linear in (block.qkv, block.up, block.out, block.down):
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)

    def forward(self, text, targets):
        h = self.drop(self.wte(text) + self.wpe.weight)
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.lnf(h), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def main():
    sizes = options()
    torch.set_num_threads(sizes.threads)
    torch.manual_seed(1)
    model = GPT(sizes)
    decayed = [p for name, p in model.named_parameters() if p.dim() == 2 and name != "wpe.weight"]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or name == "wpe.weight"]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    forward = torch.compile(model) if sizes.compile else model
    batch = torch.randint(sizes.vocabulary, (sizes.batch, sizes.length + 1))

    def step():
        loss = forward(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    serve(step)


main()
