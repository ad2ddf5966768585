//! What instances do, as numbers for a monitoring system: one table of metrics, and their values
//! from what the nodes report, as OpenMetrics text.
//!
//! What nodes report of their processes' work has its form in [`work`].
//!
//! The format is OpenMetrics 1.0.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

mod rates;
mod table;
pub mod work;

use std::collections::BTreeMap;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use work::Wait;

pub use rates::{NodeRates, OperationRates, ProcessRates, Rates, WaitRates};
pub use table::{Kind, METRICS, Measure, Metric, Source, page};

/// What one node of an instance reports; the fields are those of `mayfly status --json`.
#[derive(Debug, Clone)]
pub struct Node {
    /// The instance's name.
    pub name: String,
    /// The node's number.
    pub node: u32,
    /// Where it is.
    pub host: String,
    /// Nothing of a node that does not answer.
    pub report: Option<Value>,
}

/// A value with the values of its own labels.
struct Sample {
    labels: Vec<String>,
    value: Measured,
}

/// A value of a report, with the names that lead to it.
type Labelled<'a> = (Vec<String>, &'a Value);

enum Measured {
    Number(f64),
    Waits(Wait),
}

impl Node {
    /// Does its daemon answer?
    #[must_use]
    pub fn serves(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report["state"] == "serving")
    }

    pub(crate) fn at(&self, pointer: &str) -> Option<&Value> {
        self.report.as_ref()?.pointer(pointer)
    }

    /// A part of the report; nothing in it where it is not told.
    #[must_use]
    pub fn part<T: DeserializeOwned + Default>(&self, field: &str) -> T {
        let value = self.report.as_ref().and_then(|report| report.get(field)).cloned();
        value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    }

    /// A number of the report.
    #[must_use]
    pub fn number(&self, pointer: &str) -> Option<f64> {
        self.at(pointer)?.as_f64()
    }

    /// Fields of an object of the report, by their names.
    fn fields(&self, pointer: &str) -> impl Iterator<Item = Labelled<'_>> {
        let fields = self.at(pointer).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, value)| (vec![name.clone()], value))
    }

    /// Those of the objects in an object, by the names of both.
    fn inner_fields(&self, pointer: &str) -> impl Iterator<Item = Labelled<'_>> {
        self.fields(pointer).flat_map(|(outer, value)| {
            let fields = value.as_object().into_iter().flatten();
            fields.map(move |(name, value)| {
                ([&outer[..], std::slice::from_ref(name)].concat(), value)
            })
        })
    }

    /// A field of the node's processes, by what they are: several mounts are added up.
    fn of_processes(&self, field: &str) -> BTreeMap<String, f64> {
        let processes = self.at("/processes").and_then(Value::as_array).into_iter().flatten();
        let mut sums = BTreeMap::new();
        for process in processes {
            let name = process.get("process").and_then(Value::as_str);
            if let (Some(name), Some(value)) = (name, process.get(field).and_then(Value::as_f64)) {
                *sums.entry(name.to_owned()).or_default() += value;
            }
        }
        sums
    }

    fn samples(&self, source: Source) -> Vec<Sample> {
        let number = |labels, value| Sample { labels, value: Measured::Number(value) };
        let plain = |value| number(Vec::new(), value);
        let labelled = |(label, value)| number(vec![label], value);
        let counted = |(labels, value): Labelled<'_>| Some(number(labels, value.as_f64()?));
        let waited = |(labels, value): Labelled<'_>| {
            let wait = serde_json::from_value(value.clone()).ok()?;
            Some(Sample { labels, value: Measured::Waits(wait) })
        };
        match source {
            Source::Serving => vec![plain(f64::from(u8::from(self.serves())))],
            Source::Number(pointer) => self.number(pointer).map(plain).into_iter().collect(),
            Source::Object(pointer, _) => self.fields(pointer).filter_map(counted).collect(),
            Source::Nested(pointer, _) => self.inner_fields(pointer).filter_map(counted).collect(),
            Source::Waits(pointer, _) => self.fields(pointer).filter_map(waited).collect(),
            Source::NestedWaits(pointer, _) => {
                self.inner_fields(pointer).filter_map(waited).collect()
            }
            Source::Process(field) => self.of_processes(field).into_iter().map(labelled).collect(),
        }
    }
}

/// Their text.
///
/// # Errors
/// Of the encoder, whose sink is memory.
pub fn text(nodes: Vec<Node>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Nodes(nodes)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The same in Prometheus' older text format (0.0.4), which collectors of files read: there a
/// family has the name of its samples, and no line for its unit or for the end.
#[must_use]
pub fn older(text: &str) -> String {
    let sample = |name: &str| {
        let of = |metric: &&Metric| metric.sample().trim_end_matches("_total") == name;
        METRICS.iter().find(of).map_or_else(|| name.to_owned(), Metric::sample)
    };
    let mut older = String::with_capacity(text.len());
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "UNIT" | "EOF", ..] => continue,
            ["#", what, name, rest] => {
                older.push_str(&format!("# {what} {} {rest}", sample(name)));
            }
            _ => older.push_str(line),
        }
        older.push('\n');
    }
    older
}

#[derive(Debug)]
struct Nodes(Vec<Node>);

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let unit = metric.measure.unit();
            let kind = match metric.kind {
                Kind::Counter => ConstCounter::new(0_u64).metric_type(),
                Kind::Gauge => ConstGauge::new(0_i64).metric_type(),
                Kind::Histogram => MetricType::Histogram,
            };
            // The encoder ends what it explains with a full stop of its own.
            let help = metric.help.trim_end_matches('.');
            let mut family = encoder.encode_descriptor(metric.name, help, unit.as_ref(), kind)?;
            for node in &self.0 {
                for sample in node.samples(metric.source) {
                    let number = node.node.to_string();
                    let mut labels = vec![("name", node.name.as_str()), ("node", number.as_str())];
                    let own = metric.labels().into_iter();
                    labels.extend(own.zip(sample.labels.iter().map(String::as_str)));
                    tell(&mut family, metric.kind, &labels, &sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn tell(
    family: &mut MetricEncoder<'_>,
    kind: Kind,
    labels: &[(&str, &str)],
    value: &Measured,
) -> Result<(), std::fmt::Error> {
    let labels = labels.to_vec();
    let mut one = family.encode_family(&labels)?;
    match (kind, value) {
        (Kind::Gauge, Measured::Number(value)) => ConstGauge::new(*value).encode(one),
        (_, Measured::Number(value)) => ConstCounter::new(*value).encode(one),
        (_, Measured::Waits(wait)) => {
            let edge = |bucket| Wait::edge(bucket).unwrap_or(f64::INFINITY);
            let buckets = wait.by_time.iter().enumerate();
            let buckets: Vec<_> = buckets.map(|(at, count)| (edge(at), *count)).collect();
            one.encode_histogram::<NoLabelSet>(wait.seconds, wait.count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_becomes_text_and_a_node_that_is_silent_is_down() {
        let mut by_time = [0_u64; work::WAITS];
        (by_time[1], by_time[20]) = (2, 1);
        let report = json!({
            "state": "serving", "used_bytes": 4096, "sessions": 2,
            "activity": {"answers": {"open": 3, "set_attr": 1}, "answers_to_nodes": 7,
                "held": {"node": {"open": {"count": 3, "seconds": 0.25, "by_time": by_time}}}},
            "tier": {"files": 4, "reads": {"outside": 1}, "bytes_that_are": {"dirty": 8}},
            "staging": {"running": 1, "bytes": 10, "files": {"copied": 3}},
            "work": {
                "operations": {"read": {"itself": 5}},
                "waits": {"open": {"count": 3, "seconds": 0.5, "by_time": by_time}},
            },
            "processes": [
                {"process": "mount", "cpu_seconds": 0.5, "resident_bytes": 1},
                {"process": "mount", "cpu_seconds": 0.25, "resident_bytes": 2},
            ],
        });
        let (name, host) = ("a\"b".to_owned(), "h".to_owned());
        let node = |node, report| Node { name: name.clone(), node, host: host.clone(), report };
        let text = text(vec![node(0, Some(report)), node(1, None)]).expect("memory");
        for line in [
            "# TYPE mayfly_up gauge",
            "mayfly_up{name=\"a\\\"b\",node=\"0\"} 1.0",
            "mayfly_up{name=\"a\\\"b\",node=\"1\"} 0.0",
            "mayfly_answers_total{name=\"a\\\"b\",node=\"0\",op=\"set_attr\"} 1.0",
            "mayfly_operations_total{name=\"a\\\"b\",node=\"0\",op=\"read\",way=\"itself\"} 5.0",
            "mayfly_wait_seconds_sum{name=\"a\\\"b\",node=\"0\",op=\"open\"} 0.5",
            "mayfly_wait_seconds_count{name=\"a\\\"b\",node=\"0\",op=\"open\"} 3",
            "mayfly_wait_seconds_bucket{le=\"0.000002\",name=\"a\\\"b\",node=\"0\",op=\"open\"} 2",
            "mayfly_wait_seconds_bucket{le=\"+Inf\",name=\"a\\\"b\",node=\"0\",op=\"open\"} 3",
            "mayfly_held_seconds_count{name=\"a\\\"b\",node=\"0\",for=\"node\",op=\"open\"} 3",
            "mayfly_tier_reads_total{name=\"a\\\"b\",node=\"0\",from=\"outside\"} 1.0",
            "mayfly_tier_state_bytes{name=\"a\\\"b\",node=\"0\",state=\"dirty\"} 8.0",
            "mayfly_staged_total{name=\"a\\\"b\",node=\"0\",outcome=\"copied\"} 3.0",
            "# UNIT mayfly_used_bytes bytes",
            "mayfly_used_bytes{name=\"a\\\"b\",node=\"0\"} 4096.0",
            "mayfly_cpu_seconds_total{name=\"a\\\"b\",node=\"0\",process=\"mount\"} 0.75",
            "# EOF",
        ] {
            assert!(text.lines().any(|told| told == line), "no {line:?} in:\n{text}");
        }
        let older = older(&text);
        assert!(older.contains("# TYPE mayfly_cpu_seconds_total counter\n"), "{older}");
        assert!(!older.contains("# EOF") && !older.contains("# UNIT"), "{older}");
    }

    #[test]
    fn every_metric_is_explained_once() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.help.ends_with('.') && page().contains(&metric.sample()), "{metric:?}");
        }
    }

    #[test]
    fn the_dashboard_shows_what_is_in_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/grafana/mayfly.json");
        let text = std::fs::read_to_string(path).expect("the dashboard");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        let mut shown = 0;
        for panel in dashboard["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression");
                let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let words = expression.split(part).filter(|word| word.starts_with("mayfly_"));
                for word in words {
                    shown += 1;
                    let is_told = METRICS.iter().any(|metric| match metric.kind {
                        Kind::Histogram => ["_bucket", "_count", "_sum"]
                            .iter()
                            .any(|end| word.strip_suffix(end) == Some(&metric.sample())),
                        Kind::Counter | Kind::Gauge => metric.sample() == word,
                    });
                    assert!(is_told, "{word} is no metric: {expression}");
                }
            }
        }
        assert!(shown > 10, "it shows {shown} metrics");
    }

    /// `mayfly metrics --reference > docs/reference/metrics.md` makes it anew.
    #[test]
    fn the_page_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let page_there = std::fs::read_to_string(path).expect("the page");
        assert!(page_there == page(), "the page is another one than the table's");
    }
}
