// The peer: one velo node, told what to do line by line. Operations run side by side; an answer carries its request's id.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use prometheus::{Registry, proto::MetricType};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Mutex;
use velo::discovery::{FilesystemRegistrationGuard, PeerRegistrationGuard};
use velo::{InstanceId, PeerInfo, ShutdownPolicy, Velo};

use crate::data;
use crate::handlers::{self, Seen};
use crate::lines::answer;
use crate::node;
use crate::streams::Streams;

#[derive(Deserialize)]
struct Request {
    id: u64,
    op: String,
    #[serde(default)]
    args: Value,
}

struct Peer {
    node: Velo,
    entry: Mutex<Option<FilesystemRegistrationGuard>>,
    registry: Registry,
    seen: Arc<Seen>,
    streams: Streams,
}

/// Serves until stdin ends. The first request must be `start`.
pub async fn serve() -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut peer: Option<Arc<Peer>> = None;
    while let Some(line) = lines.next_line().await? {
        let request: Request = serde_json::from_str(&line).context("not a request")?;
        match &peer {
            None => {
                let started = start(request.args).await;
                let info = started.as_ref().map(|peer| json!(peer.node.peer_info()));
                answer(request.id, info.map_err(|error| anyhow::anyhow!("{error:#}")));
                peer = started.ok().map(Arc::new);
            }
            Some(peer) => {
                let peer = Arc::clone(peer);
                tokio::spawn(async move { answer(request.id, peer.run(&request.op, request.args).await) });
            }
        }
    }
    Ok(())
}

async fn start(options: Value) -> Result<Peer> {
    let registry = Registry::new();
    let node::Started { node, entry } = node::start(read(options)?, &registry).await?;
    let seen = Arc::new(Seen::default());
    handlers::register(&node, &seen)?;
    Ok(Peer {
        node,
        entry: Mutex::new(entry),
        registry,
        seen,
        streams: Streams::default(),
    })
}

fn read<T: DeserializeOwned>(args: Value) -> Result<T> {
    serde_json::from_value(args).context("bad arguments")
}

#[derive(Deserialize)]
struct Numbered {
    number: u64,
    text: Option<String>,
}

impl Peer {
    async fn run(&self, op: &str, args: Value) -> Result<Value> {
        let node = &self.node;
        match op {
            "register" => node.register_peer(read::<PeerInfo>(args)?).map(|()| Value::Null),
            "handlersOf" => Ok(json!(node.available_handlers(read::<InstanceId>(args)?).await?)),
            "unary" => read::<crate::calls::Call>(args)?.unary(node).await,
            "typed" => read::<crate::calls::Call>(args)?.typed(node).await,
            "sync" => read::<crate::calls::Call>(args)?.sync(node).await,
            "send" => read::<crate::calls::Call>(args)?.send(node).await,
            "seen" => Ok(self.seen.take()),
            "anchor" => self.streams.anchor(node, read(args)?),
            "consume" => self.streams.consume(read(args)?).await,
            "cancelAnchor" => {
                self.streams.controller(read::<Numbered>(args)?.number)?.cancel();
                Ok(Value::Null)
            }
            "stopAnchor" => {
                self.streams.controller(read::<Numbered>(args)?.number)?.request_stop();
                Ok(Value::Null)
            }
            "dropAnchor" => self.streams.drop_anchor(read::<Numbered>(args)?.number).await,
            "attach" => self.streams.attach(node, read(args)?).await,
            "produce" => self.streams.produce(node, read(args)?).await,
            "softError" => {
                let Numbered { number, text } = read(args)?;
                self.streams.soft_error(number, &text.unwrap_or_default()).await
            }
            "end" => self.streams.end(read(args)?).await,
            "cancelled" => self.streams.signalled(read::<Numbered>(args)?.number, false).await,
            "stopped" => self.streams.signalled(read::<Numbered>(args)?.number, true).await,
            "flush" => {
                node.flush_batch();
                Ok(Value::Null)
            }
            "beginDrain" => {
                node.begin_drain();
                Ok(Value::Null)
            }
            "shutdown" => {
                let limit = Duration::from_millis(read::<u64>(args)?);
                node.graceful_shutdown(ShutdownPolicy::Timeout(limit)).await;
                Ok(Value::Null)
            }
            "registerData" => Ok(data::register(node, read(args)?)),
            "getData" => data::fetch(node, read(args)?).await,
            "describeData" => data::describe(node, read(args)?).await,
            "refData" => node.ref_handle(read(args)?).await.map(|()| Value::Null),
            "leaveDirectory" => {
                if let Some(mut entry) = self.entry.lock().await.take() {
                    entry.unregister().await?;
                }
                Ok(Value::Null)
            }
            "metrics" => Ok(self.metrics()),
            _ => bail!("there is no operation {op}"),
        }
    }

    /// Every series of the node: a number, or for a histogram its count and sum.
    fn metrics(&self) -> Value {
        let mut series = Vec::new();
        for family in self.registry.gather() {
            for metric in family.get_metric() {
                let labels: serde_json::Map<String, Value> = metric
                    .get_label()
                    .iter()
                    .map(|label| (label.name().into(), json!(label.value())))
                    .collect();
                let value = match family.get_field_type() {
                    MetricType::COUNTER => json!(metric.get_counter().value()),
                    MetricType::GAUGE => json!(metric.get_gauge().value()),
                    _ => {
                        let histogram = metric.get_histogram();
                        json!({ "count": histogram.get_sample_count(), "sum": histogram.get_sample_sum() })
                    }
                };
                series.push(json!({ "name": family.name(), "labels": labels, "value": value }));
            }
        }
        json!(series)
    }
}
