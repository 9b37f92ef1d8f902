"""Checks a run folder with TensorBoard's own reader: scalars, text, histogram, hparams, as `tests/logger.rs` wrote them.

    python3 tests/tensorboard_reader.py RUN_DIR

Says so and ends well where the package `tensorboard` is not installed.
"""

import math
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError:
    print("skipped: the package tensorboard is not installed")
    sys.exit(0)

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
events.Reload()

loss = events.Scalars("losses/td_loss")
assert [e.step for e in loss] == list(range(10, 160, 10)), [e.step for e in loss]
for e in loss:
    if e.step == 40:
        assert math.isnan(e.value), e
    else:
        assert e.value == (1.0 if e.step <= 100 else 2.0), e

(text,) = events.Tensors("config")
assert text.tensor_proto.string_val[0].decode() == "# a *run*", text
assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"

(histogram,) = events.Histograms("weights")
h = histogram.histogram_value
assert (h.min, h.max, h.num, h.sum, h.sum_squares) == (0.0, 3.0, 4.0, 5.0, 11.0), h
assert len(h.bucket) == 30 and h.bucket_limit[-1] == 3.0 and sum(h.bucket) == 4.0, h

content = events.PluginTagToContent("hparams")
parts = {t: plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/" + t])
         for t in ("experiment", "session_start_info", "session_end_info")}
assert [i.name for i in parts["experiment"].experiment.hparam_infos] == [
    "backbone.name", "learner.batch", "learner.double_q"]
assert [i.name.tag for i in parts["experiment"].experiment.metric_infos] == ["losses/td_loss"]
hparams = parts["session_start_info"].session_start_info.hparams
assert hparams["backbone.name"].string_value == "mamba"
assert hparams["learner.batch"].number_value == 8.0
assert hparams["learner.double_q"].bool_value is True
assert parts["session_end_info"].session_end_info.status == 1, parts["session_end_info"]
print("TensorBoard reads scalars, text, histogram and hparams")
