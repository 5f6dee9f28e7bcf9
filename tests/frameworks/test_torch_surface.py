"""Other modules with torch: tensors saved, taken and sampled; modules explained."""

import os

import numpy as np
import pytest

import onecopy as oc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

MIB = 1 << 20


def test_torch_gets_tensors_on_the_same_memory(torch):
    table = oc.share([{"n": i, "b": [i / 2] * i, "s": "x"} for i in range(5)])
    taken = table.take(torch.tensor([4, 1]), out="torch")
    assert taken["n"].tolist() == [4, 1]
    assert taken["b"].values.dtype == torch.float64
    assert taken["b"].offsets.tolist() == [0, 4, 5]
    assert taken["s"] == ["x", "x"]


def test_a_module_is_looked_at_weight_by_weight(torch, tmp_path):
    ones = np.ones((1024, 1024), np.float32)
    oc.save(tmp_path / "m.safetensors", {"0.weight": ones, "0.bias": ones[0]})
    module = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024))
    oc.torch.load_into(module, tmp_path / "m.safetensors", strict=False)
    float(module[0].weight.detach().sum())  # in memory
    told = {one.name: one for one in oc.explain(module).findings}
    assert (told["0.weight"].kind, told["0.weight"].private) == ("shared", 0)
    assert told["0.weight"].path == str(tmp_path / "m.safetensors")
    assert (told["1.weight"].kind, told["1.weight"].private) == ("heap", 4 * MIB)
    assert "oc.torch.load_into" in told["1.weight"].advice
    module[0].weight.data[512] += 1
    written = {one.name: one for one in oc.explain(module).findings}["0.weight"]
    assert written.kind == "written"
    assert 4096 <= written.private <= 3 * 4096
    assert "written to in place" in str(oc.explain(module))
    assert [str(path) for path in assert_shared(module, [os.getpid()]).paths] == [str(tmp_path / "m.safetensors")]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_takes_it_as_sampler_and_as_batch_sampler(torch, workers):
    data = torch.utils.data
    rows, order = list(range(100, 200)), Shuffle(100, seed=4)
    one = data.DataLoader(rows, sampler=order, batch_size=7, num_workers=workers)
    other = data.DataLoader(rows, batch_sampler=order.batches(7), num_workers=workers)
    assert len(one) == len(other) == 15
    for epoch in range(2):
        order.set_epoch(epoch)
        expected = [100 + number for number in Shuffle(100, 4, epoch)]
        for loader in (one, other):
            assert [number for batch in loader for number in batch.tolist()] == expected
