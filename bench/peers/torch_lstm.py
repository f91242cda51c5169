"""Two LSTM layers over bytes in PyTorch (nn.LSTM), the network and update of bench/models/lstm.cinch, as a worker for bench/lstm."""
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


if __name__ == "__main__":
    main()
