"""Models of PyTorch as people write them, small, with drawn weights: name -> (module, example inputs)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(35, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 12), nn.GELU())
        self.out = nn.Linear(12, 4, bias=False)

    def forward(self, x):
        return self.out(self.layers(x))


# ---- Pictures ---------------------------------------------------------------------------------------------------------------
class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """torchvision's, narrower."""

    def __init__(self, block, counts, width, classes=7):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        now, grow = width, 4 if block is Bottleneck else 1
        for number, count in enumerate(counts):
            parts = []
            for position in range(count):
                parts.append(block(now, width << number, 2 if number and not position else 1))
                now = grow * (width << number)
            setattr(self, "layer%d" % (number + 1), nn.Sequential(*parts))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(now, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    """VGG11 with batch norm, narrower."""

    def __init__(self):
        super().__init__()
        layers, now = [], 3
        for size in (8, "M", 12, "M", 16, 16, "M", 20, 20, "M", 20, 20, "M"):
            if size == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(now, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(True)]
                now = size
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.classifier = nn.Sequential(nn.Linear(20, 24), nn.ReLU(True), nn.Dropout(), nn.Linear(24, 24), nn.ReLU(True), nn.Dropout(), nn.Linear(24, 5))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class InvertedResidual(nn.Module):
    def __init__(self, inside, outside, stride, factor):
        super().__init__()
        hidden = inside * factor
        self.use_res_connect = stride == 1 and inside == outside
        layers = []
        if factor != 1:
            layers.append(nn.Sequential(nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)))
        layers += [
            nn.Sequential(nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)),
            nn.Conv2d(hidden, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        features, now = [nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True))], 8
        for factor, outside, count, stride in ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 3, 2)):
            for number in range(count):
                features.append(InvertedResidual(now, outside, stride if not number else 1, factor))
                now = outside
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(now, 6))

    def forward(self, x):
        x = self.features(x)
        x = F.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


class DoubleConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.double_conv = nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
                                         nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down1, self.down2 = DoubleConv(2, 6), DoubleConv(6, 8), DoubleConv(8, 10)
        self.up1, self.conv1 = nn.ConvTranspose2d(10, 8, 2, stride=2), DoubleConv(16, 8)
        self.up2, self.conv2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), DoubleConv(14, 6)
        self.outc = nn.Conv2d(6, 3, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        y = self.conv1(torch.cat([b, self.up1(c)], dim=1))
        return self.outc(self.conv2(torch.cat([a, self.up2(y)], dim=1)))


# ---- Texts --------------------------------------------------------------------------------------------------------------------
class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, places, flash):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.flash = heads, flash
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        if not flash:
            self.register_buffer("bias", torch.tril(torch.ones(places, places)).view(1, 1, places, places))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (each.view(B, T, self.heads, C // self.heads).transpose(1, 2) for each in (q, k, v))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class GPTBlock(nn.Module):
    def __init__(self, width, heads, places, flash):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), CausalSelfAttention(width, heads, places, flash), nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), act=nn.GELU(approximate="tanh"), c_proj=nn.Linear(4 * width, width), dropout=nn.Dropout(0.1)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.dropout(m.c_proj(m.act(m.c_fc(self.ln_2(x)))))


class GPT2(nn.Module):
    """As nanoGPT writes it, with tied weights."""

    def __init__(self, flash=True, places=10, vocabulary=29, width=24):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocabulary, width), wpe=nn.Embedding(places, width), drop=nn.Dropout(0.1),
                                              h=nn.ModuleList([GPTBlock(width, 3, places, flash) for _ in range(3)]), ln_f=nn.LayerNorm(width)))
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class BertSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.size = heads, width // heads

    def forward(self, x, keys):
        split = lambda t: t.view(*t.shape[:2], self.heads, self.size).permute(0, 2, 1, 3)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size) + (1.0 - keys[:, None, None, :]) * -10000.0
        y = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        return self.dense(y.view(*y.shape[:2], self.heads * self.size))


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.norm1 = BertSelfAttention(width, heads), nn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.output, self.norm2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, keys):
        x = self.norm1(x + self.dropout(self.attention(x, keys)))
        return self.norm2(x + self.dropout(self.output(F.gelu(self.intermediate(x)))))


class BERT(nn.Module):
    def __init__(self, places=9, vocabulary=31, width=16):
        super().__init__()
        self.word, self.position, self.kind = nn.Embedding(vocabulary, width), nn.Embedding(places, width), nn.Embedding(2, width)
        self.norm, self.layer = nn.LayerNorm(width, eps=1e-12), nn.ModuleList([BertLayer(width, 2) for _ in range(2)])
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 3)
        self.register_buffer("position_ids", torch.arange(places)[None])

    def forward(self, input_ids, token_type_ids, attention_mask):
        x = self.norm(self.word(input_ids) + self.position(self.position_ids) + self.kind(token_type_ids))
        for layer in self.layer:
            x = layer(x, attention_mask.to(x.dtype))
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, places):
        super().__init__()
        self.size = width // heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)
        angles = torch.outer(torch.arange(places).float(), 10000 ** (-torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, x):
        h = self.input_layernorm(x)
        q, k, v = (t.view(*t.shape[:2], -1, self.size).transpose(1, 2) for t in (self.q_proj(h), self.k_proj(h), self.v_proj(h)))
        q, k = q * self.cos + rotate_half(q) * self.sin, k * self.cos + rotate_half(k) * self.sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        x = x + self.o_proj(y.reshape(*y.shape[:2], -1))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class LLaMA(nn.Module):
    def __init__(self, places=8, vocabulary=23, width=16):
        super().__init__()
        self.embed_tokens, self.layers = nn.Embedding(vocabulary, width), nn.ModuleList([LlamaBlock(width, 4, 2, places) for _ in range(2)])
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class ViTBlock(nn.Module):
    """timm's."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(B, N, C))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 10, width))
        self.blocks, self.norm, self.head = nn.Sequential(*[ViTBlock(width, 2) for _ in range(2)]), nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class LSTM(nn.Module):
    def __init__(self, kind=nn.LSTM, both=False):
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.rnn = kind(8, 12, num_layers=2, batch_first=True, dropout=0.1, bidirectional=both)
        self.fc = nn.Linear(24 if both else 12, 17)

    def forward(self, text):
        y, _ = self.rnn(self.embedding(text))
        return self.fc(y)


class ConvText(nn.Module):
    """Convolutions in one direction, dilated; a transposed one; group norm; an odd head by einsum."""

    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b = nn.Embedding(13, 6), nn.Conv1d(6, 8, 3, padding=2, dilation=2), nn.Conv1d(8, 8, 4, stride=2, groups=2)
        self.scale = nn.Parameter(torch.randn(8, 4))

    def forward(self, text):
        h = self.embed(text).transpose(1, 2)
        h = F.leaky_relu(self.b(torch.sigmoid(self.a(h))), 0.2)
        h = h.clamp(-2, 2) - h.mean(dim=-1, keepdim=True)
        return torch.einsum("bct,cd->bd", h, self.scale) + torch.where(h[:, :4, 0] > 0, h[:, :4, 0], torch.zeros_like(h[:, :4, 0]))


def pictures(size, channels=3):
    return (torch.randn(4, channels, size, size),)


def words(count, length):
    return (torch.randint(0, count, (4, length)),)


# ---- Modules of the library that are written in operations when they are exported --------------------------------------------------
class Attends(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.up, self.attn, self.out = nn.Linear(7, 12), nn.MultiheadAttention(12, 3, dropout=0.1, batch_first=batch_first), nn.Linear(12, 5)

    def forward(self, x):
        h = self.up(x if self.attn.batch_first else x.transpose(0, 1))
        h = h + self.attn(h, h, h, need_weights=False)[0]
        return self.out(h if self.attn.batch_first else h.transpose(0, 1))


class Encoder(nn.Module):
    def __init__(self, causal=False, **more):
        super().__init__()
        self.table = nn.Embedding(19, 12)
        layer = nn.TransformerEncoderLayer(12, 3, 20, 0.1, batch_first=True, **more)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(12, 4)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(9) if causal else None)

    def forward(self, x):
        return self.out(self.encoder(self.table(x), mask=self.mask, is_causal=self.mask is not None).mean(1))


class Padded(nn.Module):
    """Keys that are hidden in some examples; with `causal`, later ones in all."""

    def __init__(self, causal=False, **more):
        super().__init__()
        self.table = nn.Embedding(19, 12)
        layer = nn.TransformerEncoderLayer(12, 3, 20, 0.1, batch_first=True, **more)
        self.encoder, self.attn = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.MultiheadAttention(12, 2, batch_first=True)
        self.out = nn.Linear(12, 4)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(9) if causal else None)

    def forward(self, x, real):
        h = self.encoder(self.table(x), mask=self.mask, src_key_padding_mask=real == 0, is_causal=self.mask is not None)
        return self.out(h + self.attn(h, h, h, key_padding_mask=real == 0, need_weights=False)[0])


class Translates(nn.Module):
    """Encoder, decoder and attention from the one to the other."""

    def __init__(self, **more):
        super().__init__()
        self.source, self.target = nn.Embedding(19, 12), nn.Embedding(17, 12)
        self.both = nn.Transformer(12, 3, 2, 2, 20, 0.1, batch_first=True, **more)
        self.both.encoder.enable_nested_tensor = False
        self.again, self.out = nn.MultiheadAttention(12, 2, batch_first=True), nn.Linear(12, 17)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, x, y, real):
        padded, seen = real == 0, self.source(x)
        h = self.both(seen, self.target(y), tgt_mask=self.mask, tgt_is_causal=True, src_key_padding_mask=padded, memory_key_padding_mask=padded)
        return self.out(h + self.again(h, seen, seen, need_weights=False)[0])


class Recurrent(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.rnn = kind(6, 8, **more)
        self.out = nn.Linear(8 * (1 + self.rnn.bidirectional), 3)

    def forward(self, x):
        if self.rnn.batch_first:
            return self.out(self.rnn(x)[0])
        return self.out(self.rnn(x.transpose(0, 1))[0]).transpose(0, 1)


def models():
    torch.manual_seed(5)
    yield "mlp", MLP(), (torch.randn(4, 5, 7),)
    yield "resnet18", ResNet(BasicBlock, (2, 2, 2, 2), 8), pictures(32)
    yield "resnet50", ResNet(Bottleneck, (3, 4, 6, 3), 4), pictures(32)
    yield "vgg11_bn", VGG(), pictures(32)
    yield "mobilenet_v2", MobileNetV2(), pictures(32)
    yield "unet", UNet(), pictures(16, 2)
    yield "vit", ViT(), pictures(12)
    yield "gpt2", GPT2(), words(29, 10)
    yield "gpt2_by_hand", GPT2(flash=False), words(29, 10)
    yield "bert", BERT(), (*words(31, 9), torch.randint(0, 2, (4, 9)), (torch.arange(9)[None] < torch.tensor([[9], [5], [1], [7]])).long())
    yield "llama", LLaMA(), words(23, 8)
    yield "lstm", LSTM(), words(17, 11)
    yield "gru_both_ways", LSTM(nn.GRU, True), words(17, 11)
    yield "attends", Attends(), (torch.randn(4, 5, 7),)
    yield "attends_time_first", Attends(False), (torch.randn(4, 5, 7),)
    yield "encoder", Encoder(), words(19, 9)
    yield "encoder_causal", Encoder(True, norm_first=True, activation="gelu"), words(19, 9)
    for kind in (nn.LSTM, nn.GRU):
        name = kind.__name__.lower()
        yield name + "_two_layers", Recurrent(kind, num_layers=2, batch_first=True, dropout=0.1), (torch.randn(4, 5, 6),)
        yield name + "_time_first", Recurrent(kind), (torch.randn(4, 5, 6),)
        yield name + "_deep_both_ways", Recurrent(kind, num_layers=2, bidirectional=True), (torch.randn(4, 5, 6),)
    yield "conv_text", ConvText(), words(13, 15)
    real = (torch.arange(9)[None] < torch.tensor([[9], [5], [1], [7]])).long()
    yield "padded", Padded(), (*words(19, 9), real)
    yield "padded_causal", Padded(True, norm_first=True, activation="gelu"), (*words(19, 9), real)
    yield "translates", Translates(), (*words(19, 9), *words(17, 6), real)
    yield "translates_norm_first", Translates(norm_first=True, activation="gelu"), (*words(19, 9), *words(17, 6), real)


def export(module, inputs):
    """In train mode, the batch dynamic; statistics of batch norms that say something."""
    for each in module.modules():
        if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d)):
            each.running_mean.normal_(), each.running_var.uniform_(0.5, 2)
    batch = torch.export.Dim("batch", min=2)
    return torch.export.export(module.train(), inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))
