// Data that the node lends by handle: registered from a seed, fetched as a length and a checksum.

use anyhow::Result;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use velo::{DataHandle, Velo};

use crate::payload::{bytes_of, checksum};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    length: usize,
    seed: u32,
}

pub fn register(node: &Velo, data: Register) -> Value {
    json!(node.register_data(Bytes::from(bytes_of(data.length, data.seed))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    handle: DataHandle,
    /// Gives the lock back and keeps the reference.
    detach: bool,
}

pub async fn fetch(node: &Velo, Fetch { handle, detach }: Fetch) -> Result<Value> {
    let (data, lease) = node.get(handle).await?;
    if detach {
        node.detach(handle, lease).await?;
    } else {
        node.release(handle, lease).await?;
    }
    Ok(json!([data.len(), checksum(&data)]))
}

/// Total length and references.
pub async fn describe(node: &Velo, handle: DataHandle) -> Result<Value> {
    let found = node.metadata(handle).await?;
    Ok(json!([found.total_len, found.refcount]))
}
