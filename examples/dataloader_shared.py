"""An existing Dataset, one line more, and its DataLoader workers hold one copy, however they are started.

python examples/dataloader_shared.py        (needs torch and onecopy-monitor)
"""

import multiprocessing

import torch
from torch.utils.data import DataLoader, Dataset

import onecopy as oc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

ROWS, WORKERS = 100_000, 2


class Annotations(Dataset):
    """Boxes of pictures, as people keep them: a list of dicts, and an array."""

    def __init__(self) -> None:
        self.pictures = [
            {"file": f"images/{i:08}.jpg", "id": i, "boxes": [[i % 640, i % 480, 20.5, 10.25]] * (1 + i % 5)}
            for i in range(ROWS)
        ]
        self.weights = torch.linspace(0, 1, ROWS)

    def __len__(self) -> int:
        """Tell how many pictures there are."""
        return len(self.pictures)

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        """Give the id, the mean box and the weight of a picture."""
        picture = self.pictures[i]
        return picture["id"], torch.tensor(picture["boxes"]).mean(0), self.weights[i]


def run(dataset: Annotations, method: str) -> None:
    """Read everything in shuffled order, with workers of one start method, and prove that they share."""
    order = Shuffle(len(dataset), seed=7)
    loader = DataLoader(
        dataset,
        batch_sampler=order.batches(256),
        num_workers=WORKERS,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    batches = iter(loader)
    ids = [next(batches)[0] for _ in range(WORKERS)]  # then all have started
    started = assert_shared(dataset, batches)
    ids += [batch[0] for batch in batches]
    seen = assert_shared(dataset, batches, since=started)
    assert sorted(torch.cat(ids).tolist()) == list(range(ROWS))
    held = sum(part.bytes_after for part in dataset.onecopy_report.moved)
    grown = max(seen.growth(worker) for worker in seen.workers)
    print(
        f"{method}: {WORKERS} workers hold one copy of {held / 1e6:.1f} MB; none grew by more than {grown / 1e6:.1f} MB"
    )


def main() -> None:
    """Share the dataset, and read it three times."""
    multiprocessing.set_forkserver_preload(["__main__", "torch", "onecopy_records.rows"])  # workers have them at once
    dataset = oc.torch.share_dataset(Annotations())
    print(dataset.onecopy_report)
    for method in ("fork", "spawn", "forkserver"):
        run(dataset, method)


if __name__ == "__main__":
    main()
