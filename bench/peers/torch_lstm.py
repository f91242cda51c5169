"""Two LSTM layers over bytes in PyTorch (nn.LSTM), the network and update of bench/models/lstm.cinch, as a worker for bench/lstm."""
import json
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from worker import options, serve


class Char(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.lstm = nn.LSTM(sizes.width, sizes.width, sizes.layers, batch_first=True)
        self.out = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, text):
        return self.out(self.lstm(self.embedding(text))[0])


def main():
    sizes = options()
    torch.set_num_threads(sizes.threads)
    torch.manual_seed(1)
    model = Char(sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002, fused=True)
    batch = torch.randint(sizes.vocabulary, (sizes.batch, sizes.length + 1))

    def step():
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, sizes.vocabulary), batch[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    serve(step)


def compare(folder, length):
    """The largest difference between the logits that nn.LSTM computes from our parameters and ours, as a share of the largest."""
    with open(folder + "/out/final.safetensors", "rb") as file:
        header = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(header))
        data = file.read()
    tensors = {
        name: torch.from_numpy(numpy.frombuffer(data[slice(*entry["data_offsets"])], numpy.float32).reshape(entry["shape"]).copy())
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    ours = numpy.load(folder + "/logits.npy")
    with open(folder + "/text.txt", "rb") as file:
        written = file.read()
    text = torch.tensor([list(written[row * length : (row + 1) * length]) for row in range(len(ours))])
    x = F.embedding(text, tensors["embedding"])
    with torch.no_grad():
        for layer in ("a", "b"):
            width = tensors[layer + ".cell.hidden.weight"].shape[1]
            lstm = nn.LSTM(x.shape[-1], width, batch_first=True)
            lstm.weight_ih_l0.copy_(tensors[layer + ".inputs.weight"])
            lstm.weight_hh_l0.copy_(tensors[layer + ".cell.hidden.weight"])
            lstm.bias_ih_l0.copy_(tensors[layer + ".inputs.bias"])
            lstm.bias_hh_l0.copy_(tensors[layer + ".cell.hidden.bias"])
            x = lstm(x)[0]
        logits = F.linear(x, tensors["out.weight"], tensors["out.bias"]).numpy()
    print(float(abs(ours - logits).max() / abs(logits).max()))


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(sys.argv[2], int(sys.argv[3]))
    else:
        main()
