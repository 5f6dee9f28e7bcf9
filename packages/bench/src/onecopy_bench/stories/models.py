"""The first story: a mapped `.ort` file, by one process and by four."""

from __future__ import annotations

from pathlib import Path

from onecopy.text import size
from onecopy_bench.engine.record import Log, Record
from onecopy_bench.engine.tables import MB
from onecopy_bench.scenarios.models import scenario as models
from onecopy_bench.stories.story import Line, Metric, Scale, Source, Story, Telling, Watch, number_in

MODEL, FOUR = "convolutions", 4
DEFAULT, MAPPED, IN_PLACE = "ort", "ort, mapped", "ort, mapped, bytes"
ORT, PACKED = "onecopy direct, ort", "onecopy packed"
WAYS = ("inline", DEFAULT, MAPPED, IN_PLACE, "saved packed", ORT, PACKED)


def run(place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
    """Measure it: convolutions of 94 MB, the nearest to resnet50 of what is made up, in one process and in four."""
    options = models.Options(
        models=(MODEL,),
        ways=WAYS,
        processes=(1, FOUR),
        batches=(1,),
        runs=1 if scale.quick else 5,
        **scale.settings(3),
    )
    return models.run(place, options, watch, log)


ONE, SEVERAL = (MODEL, "1 process"), (MODEL, f"{FOUR} processes")

STORY = Story(
    name="models",
    title="A mapped .ort model, in one process and in four",
    problem="ONNX Runtime reads a model into the private memory of every process. An option maps .ort files instead;"
    " with a second one the weights stay where they are mapped, and processes share them.",
    sources=(
        Source(
            "microsoft/onnxruntime #28164: Add option to memory map .ORT model loads",
            "https://github.com/microsoft/onnxruntime/pull/28164",
            "using use_memory_mapped_ort_model alone doesn't have a long-running memory usage advantage because ORT"
            " will ultimately copy the model bytes from the mapped pages into Tensors",
            size="resnet50 as .ort",
        ),
    ),
    metrics=(
        Metric("load", "load, one process", "ms", number_in(ONE, "create_ns", 1e6)),
        Metric("private_1", "private, one process", "MB", number_in(ONE, "uss", MB)),
        Metric("private_4", "private, four processes", "MB", number_in(SEVERAL, "uss", MB)),
        Metric("pss", "all memory of four", "MB", number_in(SEVERAL, "pss", MB)),
    ),
    lines=(
        Line("inline", ".onnx, as it is"),
        Line(DEFAULT, ".ort, as it is", {"load": "193.13 ms", "private_1": "222.9 MB", "private_4": "462.6 MB"}),
        Line(MAPPED, "use_memory_mapped_ort_model", {"load": "121 ms", "private_4": "462.1 MB"}),
        Line(
            IN_PLACE,
            "and use_ort_model_bytes_for_initializers",
            {"load": "14.87 ms", "private_1": "109.6 MB", "private_4": "98.2 MB"},
        ),
        Line("saved packed", "optimised and packed, saved and opened by hand"),
        Line(ORT, "oc.onnxruntime.session(ort, 'direct')", ours=True),
        Line(PACKED, "oc.onnxruntime.session(onnx, 'prepacked')", ours=True),
    ),
    telling=(
        Telling(
            "private_4", DEFAULT, IN_PLACE, ORT,
            "ONNX Runtime, a mapped .ort file: private memory of 4 processes",
            "Four processes hold {before} of private memory with the .ort file as it is, {after} with the published"
            " options, and {ours} with oc.onnxruntime.session.",
        ),
        Telling(
            "load", DEFAULT, IN_PLACE, ORT, "the same: time to load, 1 process",
            "Loading takes {before} as it is, {after} with the published options, {ours} with onecopy.",
        ),
    ),
    carries=(
        "Whether weights are shared, and so the megabytes: they follow from the model, the version of ONNX Runtime and"
        " the kernels that it chooses for the CPU.",
        "Mapping alone saves nothing: the second option is the one that shares. oc.onnxruntime.session finds what fits"
        " a file, sets it and reports it, which takes some milliseconds more than the same options by hand; of a plain"
        " .onnx file it makes such a file once per machine.",
    ),
    changes=(
        "Milliseconds: another CPU, another disk, another model. Published on hardware that is not stated.",
        "The model: ten convolutions with 94 MB of weights that are made up, and not resnet50. Buffers for what flows"
        " between layers belong to a model, and are private in every row.",
        "Private memory of one process counts mapped pages that no other process has mapped; that of four does not.",
    ),
    command="onecopy bench models --model convolutions --processes 1 --processes 4",
    scenario=models.SCENARIO,
    run=run,
    size=lambda run: size(sum(run.data.values())),
    seconds=130.0,
)  # fmt: skip
