// Anchors and senders under numbers that the driver uses. A consumer reports every item by position, length and checksum, and how
// the stream ended; a producer makes its items from seeds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex as SyncMutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures::StreamExt;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use velo::streaming::{AnchorConfig, Retirement};
use velo::{StreamAnchor, StreamAnchorHandle, StreamController, StreamError, StreamFrame, StreamSender, Velo};

use crate::payload::{Token, bytes_of, checksum, token_of};

/// Items of a stream: byte strings, or Rust structs.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    #[default]
    Bytes,
    Token,
}

enum Anchor {
    Bytes(StreamAnchor<ByteBuf>),
    Token(StreamAnchor<Token>),
}

enum Sender {
    Bytes(StreamSender<ByteBuf>),
    Token(StreamSender<Token>),
}

/// Runs the same expression on either kind of anchor or sender.
macro_rules! either {
    ($type:ident, $value:expr, $name:ident => $body:expr) => {
        match $value {
            $type::Bytes($name) => $body,
            $type::Token($name) => $body,
        }
    };
}

struct OpenAnchor {
    anchor: Arc<Mutex<Option<Anchor>>>,
    controller: StreamController,
}

#[derive(Default)]
pub struct Streams {
    anchors: SyncMutex<HashMap<u64, OpenAnchor>>,
    senders: SyncMutex<HashMap<u64, Arc<Mutex<Option<Sender>>>>>,
    next: SyncMutex<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeAnchor {
    #[serde(default)]
    kind: Kind,
    heartbeat_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consume {
    anchor: u64,
    /// Waits before every `delay_every`th item is taken.
    #[serde(default)]
    delay_ms: u64,
    #[serde(default = "one")]
    delay_every: usize,
    /// Stops reading after so many items; the anchor stays.
    max: Option<usize>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attach {
    handle: StreamAnchorHandle,
    #[serde(default)]
    kind: Kind,
    key: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Produce {
    sender: u64,
    #[serde(default)]
    seed: u32,
    /// Lengths of byte items; item i has the seed `seed + i`.
    sizes: Option<Vec<usize>>,
    /// Number of tokens.
    tokens: Option<u32>,
    /// Position of the first item, where a stream goes on.
    #[serde(default)]
    from: u32,
    /// Calls `flush_batch` after every so many items.
    flush_every: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    sender: u64,
    how: Ending,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Ending {
    Finalize,
    Detach,
    Drop,
}

/// What an item is reported as.
trait Reported {
    fn report(&self) -> Value;
}

impl Reported for ByteBuf {
    fn report(&self) -> Value {
        json!([self.len(), checksum(self)])
    }
}

impl Reported for Token {
    fn report(&self) -> Value {
        json!(self)
    }
}

impl Streams {
    fn number(&self) -> u64 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }

    pub fn anchor(&self, node: &Velo, options: MakeAnchor) -> Result<Value> {
        let config = AnchorConfig {
            heartbeat_interval: options.heartbeat_ms.map(Duration::from_millis),
            ..AnchorConfig::default()
        };
        let manager = node.anchor_manager();
        let anchor = match options.kind {
            Kind::Bytes => Anchor::Bytes(manager.create_anchor_with_config(config)),
            Kind::Token => Anchor::Token(manager.create_anchor_with_config(config)),
        };
        let (handle, controller) = either!(Anchor, &anchor, it => (it.handle(), it.controller()));
        let number = self.number();
        let open = OpenAnchor {
            anchor: Arc::new(Mutex::new(Some(anchor))),
            controller,
        };
        self.anchors.lock().unwrap().insert(number, open);
        Ok(json!({ "anchor": number, "handle": handle }))
    }

    fn reader(&self, number: u64) -> Result<Arc<Mutex<Option<Anchor>>>> {
        let anchors = self.anchors.lock().unwrap();
        Ok(Arc::clone(&anchors.get(&number).context("no such anchor")?.anchor))
    }

    pub fn controller(&self, number: u64) -> Result<StreamController> {
        let anchors = self.anchors.lock().unwrap();
        Ok(anchors.get(&number).context("no such anchor")?.controller.clone())
    }

    pub async fn drop_anchor(&self, number: u64) -> Result<Value> {
        let reader = self.reader(number)?;
        drop(reader.lock().await.take());
        Ok(Value::Null)
    }

    pub async fn consume(&self, options: Consume) -> Result<Value> {
        let reader = self.reader(options.anchor)?;
        let mut anchor = reader.lock().await;
        let open = anchor.as_mut().context("the anchor was dropped")?;
        either!(Anchor, open, it => consume(it, &options).await)
    }

    pub async fn attach(&self, node: &Velo, options: Attach) -> Result<Value> {
        let Attach { handle, kind, key } = options;
        let sender = match (kind, key) {
            (Kind::Bytes, None) => Sender::Bytes(node.attach_anchor(handle).await?),
            (Kind::Token, None) => Sender::Token(node.attach_anchor(handle).await?),
            (Kind::Bytes, Some(key)) => Sender::Bytes(node.attach_anchor_keyed(handle, key).await?),
            (Kind::Token, Some(key)) => Sender::Token(node.attach_anchor_keyed(handle, key).await?),
        };
        let transport = either!(Sender, &sender, it => it.negotiated_transport().map(ToString::to_string));
        let number = self.number();
        self.senders
            .lock()
            .unwrap()
            .insert(number, Arc::new(Mutex::new(Some(sender))));
        Ok(json!({ "sender": number, "transport": transport }))
    }

    fn sender(&self, number: u64) -> Result<Arc<Mutex<Option<Sender>>>> {
        Ok(Arc::clone(
            self.senders.lock().unwrap().get(&number).context("no such sender")?,
        ))
    }

    pub async fn produce(&self, node: &Velo, options: Produce) -> Result<Value> {
        let cell = self.sender(options.sender)?;
        let sender = cell.lock().await;
        match (
            sender.as_ref().context("the sender has ended")?,
            &options.sizes,
            options.tokens,
        ) {
            (Sender::Bytes(sender), Some(sizes), None) => {
                let item = |index: u32| {
                    let at = (index - options.from) as usize;
                    ByteBuf::from(bytes_of(sizes[at], options.seed.wrapping_add(index)))
                };
                produce(sender, node, &options, sizes.len() as u32, item).await
            }
            (Sender::Token(sender), None, Some(count)) => {
                produce(sender, node, &options, count, |index| token_of(options.seed, index)).await
            }
            _ => bail!("a byte stream takes sizes, a token stream takes tokens"),
        }
    }

    pub async fn soft_error(&self, number: u64, text: &str) -> Result<Value> {
        let cell = self.sender(number)?;
        let sender = cell.lock().await;
        either!(Sender, sender.as_ref().context("the sender has ended")?, it => it.send_err(text).await?);
        Ok(Value::Null)
    }

    /// Ends a sender. Answers how its output left the node.
    pub async fn end(&self, options: End) -> Result<Value> {
        let cell = self.sender(options.sender)?;
        let sender = cell.lock().await.take().context("the sender has ended")?;
        let retired = either!(Sender, sender, it => {
            let retired = it.retired();
            match options.how {
                Ending::Finalize => it.finalize()?,
                Ending::Detach => drop(it.detach()?),
                Ending::Drop => drop(it),
            }
            retired
        });
        let retired = tokio::time::timeout(Duration::from_secs(20), retired).await?;
        Ok(json!(if retired == Retirement::Sent {
            "sent"
        } else {
            "discarded"
        }))
    }

    /// Resolves when the sender hears of a cancel (or, with `stop`, of a stop).
    pub async fn signalled(&self, number: u64, stop: bool) -> Result<Value> {
        let cell = self.sender(number)?;
        let token = {
            let sender = cell.lock().await;
            let open = sender.as_ref().context("the sender has ended")?;
            either!(Sender, open, it => if stop { it.stop_token() } else { it.cancellation_token() })
        };
        token.cancelled().await;
        Ok(Value::Null)
    }
}

async fn consume<T: Reported + DeserializeOwned>(anchor: &mut StreamAnchor<T>, options: &Consume) -> Result<Value> {
    let mut items = Vec::new();
    // Soft errors and detaches, each with the number of items before it.
    let mut marks = Vec::new();
    let mut end = None;
    while options.max.is_none_or(|max| items.len() < max) {
        if options.delay_ms > 0 && items.len() % options.delay_every == options.delay_every - 1 {
            tokio::time::sleep(Duration::from_millis(options.delay_ms)).await;
        }
        match anchor.next().await {
            Some(Ok(StreamFrame::Item(item))) => items.push(item.report()),
            Some(Ok(StreamFrame::Detached)) => marks.push(json!([items.len(), "detached"])),
            Some(Ok(StreamFrame::Finalized)) => end = Some("finalized".to_string()),
            Some(Ok(_)) => marks.push(json!([items.len(), "another frame"])),
            Some(Err(StreamError::SenderError(text))) => marks.push(json!([items.len(), text])),
            Some(Err(error)) => end = Some(error.to_string()),
            None => {
                // A stream ends once: what was an end before stays it.
                return Ok(json!({ "items": items, "marks": marks, "end": end.unwrap_or("closed".into()) }));
            }
        }
    }
    Ok(json!({ "items": items, "marks": marks, "end": end }))
}

async fn produce<T: Serialize>(
    sender: &StreamSender<T>,
    node: &Velo,
    options: &Produce,
    count: u32,
    item: impl Fn(u32) -> T,
) -> Result<Value> {
    for index in options.from..options.from + count {
        sender
            .send(item(index))
            .await
            .map_err(|error| anyhow!("item {index}: {error}"))?;
        if options.flush_every.is_some_and(|every| (index + 1) % every == 0) {
            node.flush_batch();
        }
    }
    Ok(json!(count))
}
