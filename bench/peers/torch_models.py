"""The networks of src/model/builtin in PyTorch, with the input and the labels of one step."""

import torch
from torch import nn
from torch.nn import functional as F


def conv_bn_relu(channels, filters, kernel, stride=1, dims=2, relu=True):
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dims == 2 else (nn.Conv3d, nn.BatchNorm3d)
    layers = [conv(channels, filters, kernel, stride, (kernel - 1) // 2, bias=False), norm(filters)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


def fashion_cnn():
    return nn.Sequential(
        conv_bn_relu(1, 32, 3), nn.MaxPool2d(2), conv_bn_relu(32, 64, 3), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(3136, 128), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(128, 10))


class Bottleneck(nn.Module):
    def __init__(self, channels, filters, stride, changes):
        super().__init__()
        self.body = nn.Sequential(conv_bn_relu(channels, filters, 1), conv_bn_relu(filters, filters, 3, stride),
                                  conv_bn_relu(filters, 4 * filters, 1, relu=False))
        self.shortcut = conv_bn_relu(channels, 4 * filters, 1, stride, relu=False) if changes else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50():
    layers, channels = [conv_bn_relu(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for i in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not i else 1, i == 0))
            channels = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def mesh_tangling():
    layers, channels = [], 18
    for block, filters in enumerate([128, 160, 192, 256, 384, 128]):
        for i in range(3):
            layers.append(conv_bn_relu(channels, filters, 5 if block == 0 else 3, 2 if i == 0 else 1))
            channels = filters
    return nn.Sequential(*layers, nn.Conv2d(channels, 2, 1))


class UNet3d(nn.Module):
    def __init__(self):
        super().__init__()
        twice = lambda channels, first, second: nn.Sequential(conv_bn_relu(channels, first, 3, dims=3),
                                                              conv_bn_relu(first, second, 3, dims=3))
        self.down = nn.ModuleList(twice(1 if l == 0 else 32 << l, 32 << l, 64 << l) for l in range(3))
        self.bottom = twice(256, 256, 512)
        self.up = nn.ModuleList(nn.ConvTranspose3d(128 << l, 128 << l, 2, 2) for l in range(3))
        self.after = nn.ModuleList(twice(192 << l, 64 << l, 64 << l) for l in range(3))
        self.scores = nn.Conv3d(64, 3, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            skips.append(down(x))
            x = F.max_pool3d(skips[-1], 2)
        x = self.bottom(x)
        for level in reversed(range(3)):
            x = self.after[level](torch.cat([skips[level], self.up[level](x)], 1))
        return self.scores(x)


class Attention(nn.Module):
    """The channels of each head's query, key and value follow each other, as in Partita."""

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        samples, places, hidden = x.shape
        packed = self.qkv(x).view(samples, places, self.heads, 3, hidden // self.heads)
        q, k, v = packed.permute(3, 0, 2, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, causal)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def blocks(layers, hidden, heads, causal):
    return nn.Sequential(*(Block(hidden, heads, causal) for _ in range(layers)), nn.LayerNorm(hidden))


class Gpt(nn.Module):
    """Returns the scores of all places of all samples, one row for each."""

    def __init__(self, layers=4, hidden=256, heads=4, sequence=256, vocabulary=256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) * 0.02)
        self.blocks = blocks(layers, hidden, heads, True)
        self.scores = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        return self.scores(self.blocks(self.embedding(tokens) + self.positions)).flatten(0, 1)


class Vit(nn.Module):
    def __init__(self, layers=12, hidden=384, heads=6, extent=64, patch=8, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.positions = nn.Parameter(torch.randn((extent // patch) ** 2, hidden) * 0.02)
        self.blocks = blocks(layers, hidden, heads, False)
        self.scores = nn.Linear(hidden, classes)

    def forward(self, images):
        places = self.patches(images).flatten(2).transpose(1, 2)
        return self.scores(self.blocks(places + self.positions).mean(1))


# name -> network, batch, input of one sample, shape of its labels
MODELS = {"fashion-cnn": (fashion_cnn, 128, (1, 28, 28), ()), "resnet50": (resnet50, 16, (3, 224, 224), ()),
          "mesh-tangling": (mesh_tangling, 1, (18, 1024, 1024), (16, 16)), "unet3d": (UNet3d, 1, (1, 64, 64, 64), (64, 64, 64)),
          "gpt": (Gpt, 8, (256,), (256,)), "vit": (Vit, 16, (3, 64, 64), ())}


def batch_of(name, samples):
    """Random input of so many samples, and their labels."""
    _, _, sample, places = MODELS[name]
    labels = torch.arange(samples * torch.Size(places).numel()) % 2
    if name == "gpt":
        return torch.randint(256, (samples, *sample)), labels
    return torch.randn(samples, *sample), labels.reshape(samples, *places)
