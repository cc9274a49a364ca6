"""Train with PyTorch Lightning, as written for ``torchrun``: launch lightning_digits.py."""

import os

import lightning
import torch
from digits import accuracy, batches, network


class Digits(lightning.LightningModule):
    """The network of digits.py, with its loss and its optimizer."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def training_step(self, batch, _):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02 * self.trainer.world_size, momentum=0.9)


lightning.seed_everything(0)
# Lightning takes the numbers of devices and nodes as arguments; launch, like torchrun, sets these variables.
devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
trainer = lightning.Trainer(devices=devices, num_nodes=nodes, strategy="ddp", max_epochs=8, enable_progress_bar=False)
model = Digits()
trainer.fit(model, batches())
result = accuracy(model.network, torch.device("cpu"))
print(f"rank {trainer.global_rank}/{trainer.world_size} accuracy={result:.3f}", flush=True)
