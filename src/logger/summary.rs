//! Messages inside TensorBoard events: scalar, text, histogram, and the three of the HPARAMS page.
//! Source: TensorBoard's `summary.proto` and the plugin data of its `text` and `hparams` plugins, both at version 0.

use super::HparamValue;
use protobuf::{
    Message,
    well_known_types::{ListValue, Value},
};
use std::io;
use tensorboard_proto::{
    api::{DataType as HparamType, Experiment, HParamInfo, MetricInfo, MetricName, Status},
    plugin_hparams::{HParamsPluginData, SessionEndInfo, SessionStartInfo},
    summary::{HistogramProto, Summary_Value, SummaryMetadata, SummaryMetadata_PluginData},
    tensor::TensorProto,
    tensor_shape::{TensorShapeProto, TensorShapeProto_Dim},
    types::DataType,
};

/// Settings by name.
pub(super) type HparamValues<'a> = &'a [(String, HparamValue)];

/// Buckets of a histogram, as many as TensorBoard's own page shows.
const BUCKETS: usize = 30;

fn tagged(tag: &str) -> Summary_Value {
    let mut value = Summary_Value::new();
    value.set_tag(tag.into());
    value
}

fn metadata(plugin: &str, content: Vec<u8>) -> SummaryMetadata {
    let mut data = SummaryMetadata_PluginData::new();
    data.set_plugin_name(plugin.into());
    data.set_content(content);
    let mut metadata = SummaryMetadata::new();
    metadata.set_plugin_data(data);
    metadata
}

/// A tensor of rank 1 with one element, which the caller fills in.
fn one_element(dtype: DataType) -> TensorProto {
    let mut dim = TensorShapeProto_Dim::new();
    dim.set_size(1);
    let mut shape = TensorShapeProto::new();
    shape.set_dim(vec![dim].into());
    let mut tensor = TensorProto::new();
    tensor.set_dtype(dtype);
    tensor.set_tensor_shape(shape);
    tensor
}

/// A point of a curve; f32, as TensorBoard keeps it.
pub(super) fn scalar(tag: &str, value: f64) -> Summary_Value {
    let mut point = tagged(tag);
    point.set_simple_value(value as f32);
    point
}

/// A Markdown text.
pub(super) fn text(tag: &str, markdown: &str) -> Summary_Value {
    let mut tensor = one_element(DataType::DT_STRING);
    tensor.set_string_val(vec![markdown.as_bytes().to_vec()].into());
    let mut value = tagged(tag);
    // The plugin data is {version: 0}: a message of defaults has no bytes.
    value.set_metadata(metadata("text", Vec::new()));
    value.set_tensor(tensor);
    value
}

/// Counts in equal buckets between the smallest and the largest finite value.
#[derive(Debug)]
pub(super) struct Histogram {
    proto: HistogramProto,
}

impl Histogram {
    /// `None` without a finite value.
    pub fn of(values: &[f32]) -> Option<Self> {
        let finite = || values.iter().filter(|v| v.is_finite()).map(|v| f64::from(*v));
        let n = finite().count();
        let (min, max) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
        if n == 0 {
            return None;
        }
        let buckets = if max > min { BUCKETS } else { 1 };
        let width = (max - min) / buckets as f64;
        let mut counts = vec![0.0; buckets];
        for value in finite() {
            let bucket = if width > 0.0 { ((value - min) / width) as usize } else { 0 };
            counts[bucket.min(buckets - 1)] += 1.0;
        }
        let limits = (1..=buckets).map(|i| if i == buckets { max } else { min + width * i as f64 }).collect();
        let mut proto = HistogramProto::new();
        proto.set_min(min);
        proto.set_max(max);
        proto.set_num(n as f64);
        proto.set_sum(finite().sum());
        proto.set_sum_squares(finite().map(|v| v * v).sum());
        proto.set_bucket_limit(limits);
        proto.set_bucket(counts);
        Some(Self { proto })
    }

    pub fn value(self, tag: &str) -> Summary_Value {
        let mut value = tagged(tag);
        value.set_histo(self.proto);
        value
    }
}

/// One of the three `_hparams_/` values. Its content is in the metadata; the tensor is a zero that nobody reads.
fn hparams_value(tag: &str, data: &HParamsPluginData) -> io::Result<Summary_Value> {
    let mut tensor = one_element(DataType::DT_FLOAT);
    tensor.set_float_val(vec![0.0]);
    let mut value = tagged(tag);
    value.set_metadata(metadata("hparams", data.write_to_bytes().map_err(io::Error::other)?));
    value.set_tensor(tensor);
    Ok(value)
}

/// Which settings and metrics the page shows.
pub(super) fn experiment(config: HparamValues<'_>, metrics: &[(&str, f64)]) -> io::Result<Summary_Value> {
    let setting = |(name, value): &(String, HparamValue)| {
        let mut info = HParamInfo::new();
        info.set_name(name.clone());
        info.set_field_type(match value {
            HparamValue::Number(_) => HparamType::DATA_TYPE_FLOAT64,
            HparamValue::Text(_) => HparamType::DATA_TYPE_STRING,
            HparamValue::Bool(_) => HparamType::DATA_TYPE_BOOL,
        });
        // Words and switches are filtered by a list of choices; this run knows its own.
        if !matches!(value, HparamValue::Number(_)) {
            let mut choices = ListValue::new();
            choices.set_values(vec![hparam(value)].into());
            info.set_domain_discrete(choices);
        }
        info
    };
    let metric = |&(tag, _): &(&str, f64)| {
        let mut name = MetricName::new();
        name.set_tag(tag.into());
        let mut info = MetricInfo::new();
        info.set_name(name);
        info
    };
    let mut experiment = Experiment::new();
    experiment.set_hparam_infos(config.iter().map(setting).collect());
    experiment.set_metric_infos(metrics.iter().map(metric).collect());
    let mut data = HParamsPluginData::new();
    data.set_experiment(experiment);
    hparams_value("_hparams_/experiment", &data)
}

/// The settings of this run. `now` in seconds since 1970.
pub(super) fn session_start(config: HparamValues<'_>, now: f64) -> io::Result<Summary_Value> {
    let mut start = SessionStartInfo::new();
    start.set_hparams(config.iter().map(|(name, value)| (name.clone(), hparam(value))).collect());
    start.set_start_time_secs(now);
    let mut data = HParamsPluginData::new();
    data.set_session_start_info(start);
    hparams_value("_hparams_/session_start_info", &data)
}

/// How and when the run ended.
pub(super) fn session_end(success: bool, now: f64) -> io::Result<Summary_Value> {
    let mut end = SessionEndInfo::new();
    end.set_status(if success { Status::STATUS_SUCCESS } else { Status::STATUS_FAILURE });
    end.set_end_time_secs(now);
    let mut data = HParamsPluginData::new();
    data.set_session_end_info(end);
    hparams_value("_hparams_/session_end_info", &data)
}

fn hparam(value: &HparamValue) -> Value {
    let mut out = Value::new();
    match value {
        HparamValue::Number(n) => out.set_number_value(*n),
        HparamValue::Text(text) => out.set_string_value(text.clone()),
        HparamValue::Bool(on) => out.set_bool_value(*on),
    }
    out
}
