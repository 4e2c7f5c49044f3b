// Calls to the other node: unary, typed, acknowledged, fire-and-forget. A payload is named by length and seed, or is a text.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use velo::{InstanceId, Velo, WorkerId};

use crate::payload::{bytes_of, checksum};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Call {
    instance: Option<InstanceId>,
    /// Names the target instead of `instance`; a directory may know it.
    worker: Option<WorkerId>,
    handler: String,
    #[serde(default)]
    length: usize,
    #[serde(default)]
    seed: u32,
    text: Option<String>,
    value: Option<Value>,
    headers: Option<HashMap<String, String>>,
    timeout_ms: Option<u64>,
    /// Messages of `send`, each with the next seed.
    count: Option<u32>,
}

/// Sets what all four builders have in common.
macro_rules! addressed {
    ($call:expr, $builder:expr) => {{
        let mut builder = $builder;
        if let Some(instance) = $call.instance {
            builder = builder.instance(instance);
        }
        if let Some(worker) = $call.worker {
            builder = builder.worker(worker);
        }
        if let Some(headers) = $call.headers.clone() {
            builder = builder.headers(headers);
        }
        builder
    }};
}

impl Call {
    fn payload(&self, index: u32) -> Bytes {
        match &self.text {
            Some(text) => Bytes::from(text.clone()),
            None => Bytes::from(bytes_of(self.length, self.seed.wrapping_add(index))),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.unwrap_or(20_000))
    }

    pub async fn unary(self, node: &Velo) -> Result<Value> {
        let call = addressed!(self, node.unary(&self.handler)?);
        let answer: Bytes = call.raw_payload(self.payload(0)).timeout(self.timeout()).send().await?;
        let text = std::str::from_utf8(&answer).ok().filter(|text| text.len() <= 1_000);
        Ok(json!({ "length": answer.len(), "sum": checksum(&answer), "text": text }))
    }

    pub async fn typed(self, node: &Velo) -> Result<Value> {
        let call = addressed!(self, node.typed_unary::<Value>(&self.handler)?);
        call.payload(&self.value)?.timeout(self.timeout()).send().await
    }

    pub async fn sync(self, node: &Velo) -> Result<Value> {
        let call = addressed!(self, node.am_sync(&self.handler)?);
        call.raw_payload(self.payload(0)).timeout(self.timeout()).send().await?;
        Ok(Value::Null)
    }

    /// Every message is issued before the first is waited for.
    pub async fn send(self, node: &Velo) -> Result<Value> {
        let mut issued = Vec::new();
        for index in 0..self.count.unwrap_or(1) {
            let call = addressed!(self, node.am_send(&self.handler)?);
            issued.push(call.raw_payload(self.payload(index)).send());
        }
        for send in issued {
            send.await?;
        }
        Ok(Value::Null)
    }
}
