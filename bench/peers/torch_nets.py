"""The networks of bench/rivals in PyTorch, with our names of parameters, written the way that is fast on CPUs: one product for queries,
keys and values, fused attention, nn.LSTM. Each `forward` gives the loss."""
import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(sizes["I"], sizes["H"]), nn.Linear(sizes["H"], sizes["H"])
        self.fc3 = nn.Linear(sizes["H"], sizes["C"])

    def forward(self, x, y):
        return F.cross_entropy(self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))), y)


def heads_first(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def attend(qkv, heads, rate):
    batch, length, width = qkv.shape
    q, k, v = (heads_first(part, heads) for part in qkv.split(width // 3, dim=2))
    return F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True).transpose(1, 2).reshape(batch, length, width // 3)


class Attention(nn.Module):
    def __init__(self, width, heads, rate):
        super().__init__()
        self.heads, self.rate = heads, rate
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        return self.out(attend(self.qkv(x), self.heads, self.rate))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        width = sizes["D"]
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.ff = Attention(width, sizes["A"], rate), FeedForward(width, 4 * width)
        self.drop = nn.Dropout(rate)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln1(x)))
        return x + self.drop(self.ff(self.ln2(x)))


class Gpt(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        self.wte, self.wpe = (nn.Parameter(torch.empty(rows, sizes["D"])) for rows in (sizes["V"], sizes["T"]))
        self.drop = nn.Dropout(rate)
        self.blocks = nn.ModuleList(Block(sizes, rate) for _ in range(sizes["N"]))
        self.lnf = nn.LayerNorm(sizes["D"])

    def forward(self, text, targets):
        h = self.drop(F.embedding(text, self.wte) + self.wpe)
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.lnf(h), self.wte)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


class Gpt2Attention(nn.Module):
    def __init__(self, width, heads, rate):
        super().__init__()
        self.heads, self.rate, self.drop = heads, rate, nn.Dropout(rate)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        return self.drop(self.c_proj(attend(self.c_attn(x), self.heads, self.rate)))


class Gpt2Mlp(nn.Module):
    def __init__(self, width, rate):
        super().__init__()
        self.c_fc, self.c_proj, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(rate)

    def forward(self, x):
        return self.drop(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class Gpt2Block(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        width = sizes["D"]
        self.ln_1, self.attn = nn.LayerNorm(width), Gpt2Attention(width, sizes["A"], rate)
        self.ln_2, self.ff = nn.LayerNorm(width), Gpt2Mlp(width, rate)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.ff(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        self.wte, self.wpe = (nn.Parameter(torch.empty(rows, sizes["D"])) for rows in (sizes["V"], sizes["T"]))
        self.drop = nn.Dropout(rate)
        self.h = nn.ModuleList(Gpt2Block(sizes, rate) for _ in range(sizes["N"]))
        self.ln_f = nn.LayerNorm(sizes["D"])

    def forward(self, text, targets):
        h = self.drop(F.embedding(text, self.wte) + self.wpe)
        for block in self.h:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


class ConvBn(nn.Module):
    def __init__(self, inputs, outputs, taps, stride=1):
        super().__init__()
        self.c = nn.Conv2d(inputs, outputs, taps, stride, (taps - 1) // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.bn(self.c(x))


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a, self.b = ConvBn(inputs, outputs, 3, stride), ConvBn(outputs, outputs, 3)
        if stride != 1 or inputs != outputs:
            self.p = ConvBn(inputs, outputs, 1, stride)

    def forward(self, x):
        skip = self.p(x) if hasattr(self, "p") else x
        return F.relu(self.b(F.relu(self.a(x), inplace=True)) + skip, inplace=True)


class Stage(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)

    def forward(self, x):
        return self.second(self.first(x))


class ResNet18(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        f = sizes["F"]
        self.stem = ConvBn(3, f, 3)
        self.s1, self.s2, self.s3, self.s4 = Stage(f, f, 1), Stage(f, 2 * f, 2), Stage(2 * f, 4 * f, 2), Stage(4 * f, 8 * f, 2)
        self.head = nn.Linear(8 * f, sizes["C"])

    def forward(self, x, y):
        h = self.s4(self.s3(self.s2(self.s1(F.relu(self.stem(x), inplace=True)))))
        return F.cross_entropy(self.head(h.mean((2, 3))), y)


class Double(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs)
        self.c2, self.n2 = nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs)

    def forward(self, x):
        return F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x)), inplace=True))), inplace=True)


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.widen, self.merge = nn.ConvTranspose2d(inputs, outputs, 2, 2), Double(2 * outputs, outputs)

    def forward(self, x, skip):
        return self.merge(torch.cat((skip, self.widen(x)), dim=1))


class UNet(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        f = sizes["F"]
        self.d1, self.d2, self.d3, self.d4 = Double(3, f), Double(f, 2 * f), Double(2 * f, 4 * f), Double(4 * f, 8 * f)
        self.u3, self.u2, self.u1 = Up(8 * f, 4 * f), Up(4 * f, 2 * f), Up(2 * f, f)
        self.head = nn.Conv2d(f, sizes["C"], 1)

    def forward(self, x, y):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        d = self.d4(F.max_pool2d(c, 2))
        return F.cross_entropy(self.head(self.u1(self.u2(self.u3(d, c), b), a)), y)


class Lstm(nn.Module):
    def __init__(self, sizes, rate):
        super().__init__()
        width = sizes["H"]
        self.embedding = nn.Parameter(torch.empty(sizes["V"], width))
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.out = nn.Linear(width, sizes["V"])

    def forward(self, text, targets):
        logits = self.out(self.lstm(F.embedding(text, self.embedding))[0])
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))

    @staticmethod
    def names(ours):
        """nn.LSTM's names of our parameters."""
        parts = {"inputs.weight": "weight_ih", "cell.hidden.weight": "weight_hh", "inputs.bias": "bias_ih", "cell.hidden.bias": "bias_hh"}
        layer, _, part = ours.partition(".")
        return f"lstm.{parts[part]}_l{'ab'.index(layer)}" if layer in ("a", "b") else ours


NETWORKS = {"mlp": Mlp, "gpt": Gpt, "gpt2": Gpt2, "resnet18": ResNet18, "unet": UNet, "lstm": Lstm}
