"""Odd little modules: each either computes what PyTorch does, or is refused by what it is. name -> (module, example inputs, words of the refusal or None)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Odd(nn.Module):
    """A function of a module with some parts, which are made in this order."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, (nn.Module, nn.Parameter)):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x, mask=None):
        return self.function(self, x) if mask is None else self.function(self, x, mask)


class Twice(nn.Module):
    """A module of one's own, called twice, with the same weights."""

    def __init__(self):
        super().__init__()
        self.part = Odd(lambda m, x: torch.tanh(m.fc(x)) + x, fc=nn.Linear(6, 6))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.part(self.part(x) * 2))


class Words(nn.Module):
    """Inputs that are called as words of the language, or as what a program calls its own things."""

    def __init__(self):
        super().__init__()
        self.loss, self.softmax, self.mean = nn.Linear(6, 6), nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, state, out, B):
        return self.softmax(F.softmax(self.loss(state), -1) * out + self.mean) - B


class Recur(nn.Module):
    """A recurrence by hand."""

    def __init__(self):
        super().__init__()
        self.cell, self.take, self.out = nn.Linear(8, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h, all_ = torch.zeros(x.shape[0], 8), []
        for each in x.unbind(1):
            h = torch.tanh(self.cell(h) + self.take(each))
            all_.append(h)
        return self.out(torch.stack(all_, 1))


class FlatInner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.choice = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(x), self.choice(x).argmax(1, keepdim=True), x


class FlatTuple(nn.Module):
    """What a view made flat, in and out of a module of one's own."""

    def __init__(self):
        super().__init__()
        self.inner = FlatInner()

    def forward(self, x):
        a, b, c = self.inner(x.view(-1, 6))
        return (F.log_softmax(a, 1) * b).view(-1, 5, 4) + c.view(-1, 5, 6)[:, :, :4]


class Counts(nn.Module):
    """Buffers that are changed in every step; with `read`, they are part of the result."""

    def __init__(self, read):
        super().__init__()
        self.fc, self.read = nn.Linear(6, 6), read
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training or self.read:
            self.steps.add_(1)
            self.mean.mul_(0.9).add_(0.1)
        return self.fc(x) - self.mean if self.read else self.fc(x)


class OldAttention(nn.Module):
    """Heads joined with the examples, as models before `scaled_dot_product_attention` have it."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (part(x).view(B, T, 3, 4).transpose(1, 2).reshape(B * 3, T, 4) for part in (self.q, self.k, self.v))
        y = torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) / math.sqrt(4), dim=2), v)
        return y.view(B, 3, T, 4).transpose(1, 2).reshape(B, T, 12)


def masked_mean(m, x, mask):
    keep = mask.long().unsqueeze(-1)
    return m.fc((x * keep).sum(1) / keep.sum(1).clamp(min=1))


def assigned(m, x):
    y = m.fc(x).clone()
    y[:, 0] = 0
    return torch.tanh(y)


def zeros_filled(m, x):
    y = torch.zeros(x.shape[0], 8)
    y[:, :6] = m.fc(x)
    return y


def windows(m, x):
    """Attention inside windows of 2 x 2."""
    y = x.view(-1, 2, 2, 2, 2, 6).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, 6)
    y = F.softmax(m.fc(y) @ y.transpose(-2, -1), -1) @ y
    return y.view(-1, 2, 2, 2, 2, 6).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, 6)


def truth_as_numbers(m, x):
    a, b = x > 0, x < 1
    return m.fc(x) * (a * b) + (a ^ b) * 2 + (a.sum(-1, keepdim=True) == 3) * a.float().mean(-1, keepdim=True)


def view_in_place(m, x):
    y = m.fc(x).view(-1, 2, 3)
    y.sigmoid_()
    return y.flatten(1)


def truth_in_place(m, x):
    mask = x > 0
    mask &= m.fc(x) < 0.5
    mask |= x > 1
    return m.fc(x).masked_fill(mask, 0.5)


def old_view(m, x):
    y = m.fc(x)
    seen = y.view(x.shape[0], 2, 3)
    y.mul_(2)
    return seen + 1


def chained(m, x):
    y = m.fc(x)
    y.mul_(2).add_(x, alpha=3).clamp_(-1, 1)
    return y + y.relu()


def frames(m, x):
    B, T = x.shape[:2]
    y = F.max_pool2d(F.relu(m.norm(m.conv(x.view(B * T, *x.shape[2:])))), 2)
    return m.fc(F.adaptive_avg_pool2d(y, 1).flatten(1)).view(B, T, -1)


def shuffled(m, x):
    y = m.conv(x)
    B, _, H, W = y.shape
    return y.view(B, 2, 2, 2, H, W).permute(0, 1, 4, 2, 5, 3).reshape(B, 2, 2 * H, 2 * W)


def nested(m, x):
    y = m.fc(x)
    a = ((y ** 2 + 1) ** 0.5) ** 3
    return -(a - (-y)) - (1 - (1 - y)) / (2 / (y * y + 1)) + 2 ** (-1) * (-y) ** 3


def attended(q, kv, **more):
    """Attention of two heads."""
    q, kv = (each.unflatten(-1, (2, 3)).transpose(1, 2) for each in (q, kv))
    return F.scaled_dot_product_attention(q, kv, kv, **more)


def activations(m, x):
    y = F.hardswish(m.fc(x)) + F.hardsigmoid(x) * F.elu(x, 0.5) - F.leaky_relu(x, 0.3) / (1 + F.relu6(2 * x))
    return y + F.silu(x) * F.mish(-x) - torch.rsqrt(x * x + 1) + F.gelu(x, approximate="tanh")


def bent(m, x):
    y = m.fc(x)
    return F.softplus(y - 1, beta=2) / F.softplus(x, beta=0.5) + F.selu(y) * F.celu(x, 0.7) + F.celu(50 * y) + m.one(y)


def frames_normed(m, x):
    y = F.prelu(m.norm(m.conv(x.view(-1, 3, 8, 8))), m.slope)
    return m.fc(y.mean((2, 3))).view(x.shape[0], 5, -1)


def drawn(module):
    """With parameters that differ from one another."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def fc(size=6, out=None):
    return nn.Linear(size, out or size)


# ---- The modules ------------------------------------------------------------------------------------------------------------

def joined_axes(x, s, words, mask, film):
    """The examples joined with another axis."""
    yield "flat_log_softmax", Odd(lambda m, x: F.log_softmax(m.fc(x).view(-1, 6), dim=1).view(x.shape), fc=fc()), (s,), None
    yield "flat_words", Odd(lambda m, i: m.fc(m.table(i.view(-1))).view(*i.shape, 6), table=nn.Embedding(9, 6), fc=fc()), (words,), None
    yield "flat_norms", Odd(lambda m, x: m.norm(F.gelu(m.fc(x.reshape(-1, 6)))).view(x.shape) + x, fc=fc(), norm=nn.LayerNorm(6)), (s,), None
    yield "flat_pieces", Odd(lambda m, x: torch.cat(m.fc(x.flatten(0, 1)).split(2, dim=1)[::-1], dim=1).view(x.shape), fc=fc()), (s,), None
    yield "flat_tuple", FlatTuple(), (s,), None
    yield "flat_and_one_row", Odd(lambda m, x: (m.fc(x).view(-1, 6) * m.row.repeat(1, 1)).mean(1).view(-1, 5) * torch.arange(5),
        fc=fc(), row=nn.Parameter(torch.randn(1, 6))), (s,), None
    yield "flat_choice", Odd(lambda m, x, mask: torch.where(mask.reshape(-1, 1), m.fc(x).view(-1, 6), m.row).view(-1, 5, 6),
        fc=fc(), row=nn.Parameter(torch.randn(6))), (s, mask), None
    yield "flat_batch_norm", Odd(lambda m, x: m.norm(m.fc(x).view(-1, 6)).view(x.shape), fc=fc(), norm=nn.BatchNorm1d(6)), (s,), "made flat"
    yield "flat_over_all", Odd(lambda m, x: F.softmax(m.fc(x).view(-1, 6), dim=0).view(x.shape), fc=fc()), (s,), "joined the examples"
    yield "frames", Odd(frames, conv=nn.Conv2d(3, 4, 3, padding=1), norm=nn.GroupNorm(2, 4), fc=fc(4, 3)), (film,), None
    yield "frames_normed", Odd(frames_normed, conv=nn.Conv2d(3, 4, 3), norm=drawn(nn.InstanceNorm2d(4, affine=True)),
        slope=nn.Parameter(torch.randn(4)), fc=fc(4, 3)), (film,), None
    yield "windows", Odd(windows, fc=fc()), (torch.randn(4, 4, 4, 6),), None
    yield "old_attention", OldAttention(), (torch.randn(4, 5, 12),), None
    yield "time_first", Odd(lambda m, x: m.fc(x.transpose(0, 1).reshape(-1, 6)).view(5, -1, 6).permute(1, 2, 0), fc=fc()), (s,), None


def in_place_changes(x, words):
    """Changes in place."""
    yield "chained", Odd(chained, fc=fc()), (x,), None
    yield "view_in_place", Odd(view_in_place, fc=fc()), (x,), None
    yield "truth_in_place", Odd(truth_in_place, fc=fc()), (x,), None
    yield "counts", Counts(False), (x,), None
    yield "counts_read", Counts(True), (x,), "from call to call"
    yield "assigned", Odd(assigned, fc=fc()), (x,), "in place"
    yield "zeros_filled", Odd(zeros_filled, fc=fc()), (x,), "in place"
    yield "old_view", Odd(old_view, fc=fc()), (x,), "in place"
    yield "small_table", Odd(lambda m, i: m.table(i), table=nn.Embedding(9, 6, max_norm=1.0)), (words,), "in place"


def arithmetic_of_numbers(x, s):
    """Types, numbers, precedence."""
    yield "twice", Twice(), (x,), None
    yield "nested", Odd(nested, fc=fc()), (x,), None
    yield "words", Words(), (x, x + 1, x - 1), None
    yield "number_kept_as_tensor", Odd(lambda m, x: torch.maximum(m.fc(x), torch.tensor(0.25)) * torch.tensor(0.3), fc=fc()), (x,), None
    yield "norm_without_bias", Odd(lambda m, x: m.norm(m.fc(x)), fc=fc(), norm=nn.LayerNorm(6, bias=False)), (s,), None
    yield "norm_without_parameters", Odd(lambda m, x: m.norm(m.fc(x)) + m.root(x), fc=fc(), norm=nn.LayerNorm(6, elementwise_affine=False),
        root=nn.RMSNorm(6, elementwise_affine=False)), (x,), None
    yield "norm_called_twice", Odd(lambda m, x: m.norm(m.fc(m.norm(x))), fc=fc(), norm=nn.LayerNorm(6)), (s,), None
    yield "softplus", Odd(lambda m, x: F.softplus(m.fc(x) * 9), fc=fc()), (x,), None
    yield "softplus_early", Odd(lambda m, x: F.softplus(m.fc(x), threshold=5), fc=fc()), (x,), "threshold"
    yield "bent", Odd(bent, fc=fc(), one=nn.PReLU()), (x,), None
    yield "norms_over_axes", Odd(lambda m, x: m.norm(m.fc(x)) + m.plain(x) * m.root(x),
        fc=fc(), norm=drawn(nn.LayerNorm([5, 6])), plain=nn.LayerNorm([5, 6], elementwise_affine=False), root=drawn(nn.RMSNorm([5, 6]))), (s,), None
    yield "truth_as_numbers", Odd(truth_as_numbers, fc=fc()), (x,), None
    yield "temperature", Odd(lambda m, x: m.fc(x) * m.log_scale.exp() - m.shift,
        fc=fc(), log_scale=nn.Parameter(torch.tensor(0.7)), shift=torch.tensor(0.25)), (x,), None
    yield "tables", Odd(lambda m, x: (x @ m.basis) * m.gain + m.place[:, None] - m.count,
        basis=nn.Parameter(torch.randn(6, 6)), gain=torch.rand(6), place=torch.arange(5.0), count=torch.tensor(3)), (s,), None
    yield "left_product", Odd(lambda m, x: m.mix @ m.fc(x) + m.mix.mean(), fc=fc(), mix=nn.Parameter(torch.randn(5, 5))), (s,), None
    yield "result_without_derivative", Odd(lambda m, x: (m.fc(x).argmax(-1), m.fc(x)), fc=fc()), (s,), None
    yield "activations", Odd(activations, fc=fc()), (x,), None
    yield "two_results", Odd(lambda m, x: {"b": m.fc(x), "a": m.fc(x).argmax(-1, keepdim=True)}, fc=fc()), (x,), None
    yield "filled_around", Odd(lambda m, x: F.pad(m.fc(x), (1, 2, 0, 1), value=-1.5), fc=fc()), (s,), None
    yield "cropped", Odd(lambda m, x: F.pad(F.pad(m.fc(x), (-1, 2)), (1, -3, -1, -1), mode="replicate"), fc=fc()), (s,), None
    yield "rounded", Odd(lambda m, x: torch.div(m.fc(x), 2, rounding_mode="floor"), fc=fc()), (x,), "rounds"
    yield "bounds_of_tensors", Odd(lambda m, x: torch.clamp(m.fc(x), m.low, x.abs()), fc=fc(), low=nn.Parameter(torch.full((6,), -0.2))), (x,), None
    yield "fixed_without_gradient", Odd(lambda m, x: m.fc(x) + m.fc(x.detach()).detach() * 2, fc=fc()), (x,), None
    yield "compared_with_all", Odd(lambda m, x: m.fc(x) @ x.T, fc=fc()), (x,), "examples"
    yield "share_of_batch", Odd(lambda m, x: m.fc(x) / x.shape[0], fc=fc()), (x,), "number of examples"


def pictures_taken(pictures):
    """Pictures."""
    yield "shuffled", Odd(shuffled, conv=nn.Conv2d(3, 8, 3, padding=1)), (pictures,), None
    yield "pools", Odd(lambda m, x: F.avg_pool2d(F.max_pool2d(m.conv(x), 3, 2, 1), 2, 1, 1),
        conv=nn.Conv2d(3, 4, (3, 3), stride=2, padding=1, dilation=1)), (pictures,), None
    yield "up_and_down", Odd(lambda m, x: m.up(F.interpolate(m.conv(x), scale_factor=2)),
        conv=nn.Conv2d(3, 4, 2, 2, bias=False), up=nn.ConvTranspose2d(4, 2, 4, 2, 1)), (pictures,), None
    yield "wide_kernels", Odd(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 6, (1, 3)), b=nn.Conv2d(6, 6, 2, groups=3, dilation=2)), (pictures,), None
    yield "uneven_padding", Odd(lambda m, x: m.a(x), a=nn.Conv2d(3, 6, (1, 3), padding="same")), (pictures,), "paddings"
    yield "instance_norms", Odd(lambda m, x: m.a(m.conv(x)) * m.b(x)[:, :1] + m.c(x.flatten(2)).view(x.shape).mean(1, keepdim=True),
        conv=nn.Conv2d(3, 4, 1), a=drawn(nn.InstanceNorm2d(4, affine=True)), b=nn.InstanceNorm2d(3), c=nn.InstanceNorm1d(3)), (pictures,), None
    yield "slopes", Odd(lambda m, x: m.slope(m.conv(x)), conv=nn.Conv2d(3, 4, 1), slope=drawn(nn.PReLU(4))), (pictures,), None
    yield "up_padded", Odd(lambda m, x: m.wide(m.up(x)).mean(1) + m.line(x.flatten(2))[:, :, :1], up=nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1),
        wide=nn.ConvTranspose2d(4, 2, 5, 3, 2, output_padding=2, bias=False), line=nn.ConvTranspose1d(3, 48, 3, 2, 1, output_padding=1)), (pictures,), None
    yield "up_longer", Odd(lambda m, x: m.up(x), up=nn.ConvTranspose2d(3, 4, 3, 2, 0, output_padding=1)), (pictures,), "larger than its padding"
    yield "squeezed", Odd(lambda m, x: m.conv(x) * torch.sigmoid(m.fc(m.conv(x).mean((2, 3))))[:, :, None, None],
        conv=nn.Conv2d(3, 4, 1), fc=fc(4)), (pictures,), None
    for mode in ("reflect", "replicate", "circular"):
        yield mode, Odd(lambda m, x, mode=mode: m.conv(F.pad(m.conv(x), (1, 2, 3, 0), mode=mode).sin()[:, :3]).mean(1), conv=nn.Conv2d(3, 4, 1)), (pictures,), None
        yield mode + "_conv", Odd(lambda m, x: m.line(m.conv(x).flatten(2)), conv=nn.Conv2d(3, 4, 3, padding=2, padding_mode=mode),
            line=nn.Conv1d(4, 2, 3, padding=1, padding_mode=mode)), (pictures,), None
    for number, rest in enumerate([dict(ceil_mode=True), dict(count_include_pad=False), dict(ceil_mode=True, count_include_pad=False),
                                   dict(divisor_override=7), dict(ceil_mode=True, divisor_override=5)]):
        yield "means%d" % number, Odd(lambda m, x, rest=rest: F.avg_pool2d(m.conv(x), 4, 3, 2, **rest), conv=nn.Conv2d(3, 4, 3, padding=1)), (pictures,), None
    yield "ceiling", Odd(lambda m, x: F.max_pool2d(F.max_pool2d(m.conv(x), 3, 2, ceil_mode=True), 2, 3, 1, ceil_mode=True), conv=nn.Conv2d(3, 4, 3, padding=1)), (pictures,), None
    yield "ceiling_line", Odd(lambda m, x: F.avg_pool1d(F.max_pool1d(m.conv(x).flatten(2), 5, 3, 1, ceil_mode=True), 4, 3, 1, ceil_mode=True), conv=nn.Conv2d(3, 4, 3)), (pictures,), None


def sequences_read(s, words, mask):
    """Texts, recurrences, attention."""
    yield "recur", Recur(), (s,), None
    yield "last_states", Odd(lambda m, x: m.fc(torch.cat(tuple(m.rnn(x)[1][0]), -1)), rnn=nn.LSTM(6, 4, batch_first=True, bidirectional=True), fc=fc(8)), (s,), None
    yield "cells", Odd(lambda m, x: m.fc(m.rnn(x)[1][1][0]), rnn=nn.LSTM(6, 4, batch_first=True), fc=fc(4)), (s,), "part"
    yield "projected", Odd(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(6, 4, batch_first=True, proj_size=2)), (s,), "projections"
    yield "heads_biased", Odd(lambda m, x: attended(m.fc(x), x, attn_mask=m.bias), fc=fc(), bias=nn.Parameter(torch.randn(2, 1, 5))), (s,), None
    yield "banded", Odd(lambda m, x: attended(m.fc(x), x, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(1)), fc=fc()), (s,), None
    yield "causal_across", Odd(lambda m, x: attended(m.fc(x[:, :3]), x, is_causal=True), fc=fc()), (s,), None
    yield "softmax_of_places", Odd(lambda m, x: (F.softmax(m.fc(x), dim=1) * x).sum(dim=1), fc=fc()), (s,), None
    yield "scores_by_letters", Odd(lambda m, x: torch.einsum("xyz,xwz->xyw", m.fc(x), x), fc=fc()), (s,), None
    yield "learned_queries", Odd(lambda m, x: torch.einsum("qd,btd->bqt", m.fc(m.norm(m.queries)), x),
        fc=fc(), norm=nn.LayerNorm(6), queries=nn.Parameter(torch.randn(3, 6))), (s,), None
    yield "tokens_before", Odd(lambda m, x: m.fc(torch.cat((m.token.repeat(x.shape[0], 1, 1), x), 1)).amax((1,)),
        fc=fc(), token=nn.Parameter(torch.randn(1, 2, 6))), (s,), None
    yield "words_padded", Odd(lambda m, i: m.fc(m.table(i)), table=nn.Embedding(9, 6, padding_idx=0), fc=fc()), (words,), None
    yield "words_by_frequency", Odd(lambda m, i: m.table(i), table=nn.Embedding(9, 6, scale_grad_by_freq=True)), (words,), "scale_grad_by_freq"
    yield "words_clamped", Odd(lambda m, i: m.table(i.clamp(max=6)) + (i == 0).float()[..., None] * (i > 2.5).unsqueeze(-1) / (i + 1)[..., None],
        table=nn.Embedding(9, 6)), (words,), None
    yield "triangle", Odd(lambda m, x: (m.fc(x) @ x.mT).masked_fill(torch.triu(torch.ones(5, 5), 1) > 0, -1e4).softmax(-1), fc=fc()), (s,), "aten.triu"
    yield "lower", Odd(lambda m, x: (m.fc(x) @ x.mT).tril(-1) + torch.zeros(5, 5).tril(), fc=fc()), (s,), None
    yield "masked_mean", Odd(masked_mean, fc=fc()), (s, mask), None
    yield "heads_masked", Odd(lambda m, x, mask: m.fc(m.heads(x, x, x, key_padding_mask=~mask, need_weights=False)[0]),
        heads=nn.MultiheadAttention(6, 2, batch_first=True), fc=fc()), (s, mask), None
    yield "heads_hidden", Odd(lambda m, x, hidden: m.fc(m.heads(x, x, x, key_padding_mask=hidden, need_weights=False)[0]),
        heads=nn.MultiheadAttention(6, 2, batch_first=True), fc=fc()), (s, ~mask), None
    yield "normalized", Odd(lambda m, x: F.normalize(m.fc(x), dim=-1) @ F.normalize(x, p=1, dim=2).mT + x.norm(dim=(1, 2))[:, None, None], fc=fc()), (s,), None
    yield "largest_norm", Odd(lambda m, x: m.fc(x).norm(p=3, dim=-1), fc=fc()), (s,), "of order 3"


def frozen(module, *names):
    for name in names:
        module.get_submodule(name).requires_grad_(False)
    return module


def kept_as_they_are(x):
    """Parameters that are not trained."""
    parts = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6))
    yield "frozen_part", frozen(Odd(lambda m, x: m.out(torch.tanh(m.body(x))), body=parts, out=fc()), "body"), (x,), None
    yield "frozen_one", frozen(Odd(lambda m, x: m.out(torch.tanh(m.body(x))), body=parts, out=fc()), "body.0"), (x,), None
    yield "frozen_all", frozen(Odd(lambda m, x: m.out(x), out=fc()), "out"), (x,), None


def odd():
    torch.manual_seed(7)
    x, s, words = torch.randn(4, 6), torch.randn(4, 5, 6), torch.randint(0, 9, (4, 5))
    pictures, film = torch.randn(4, 3, 8, 8), torch.randn(4, 5, 3, 8, 8)
    mask = torch.arange(5)[None] < torch.tensor([[5], [2], [1], [3]])
    yield from joined_axes(x, s, words, mask, film)
    yield from in_place_changes(x, words)
    yield from arithmetic_of_numbers(x, s)
    yield from pictures_taken(pictures)
    yield from sequences_read(s, words, mask)
    yield from kept_as_they_are(x)
