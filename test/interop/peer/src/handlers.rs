// What the node serves to callers, and what its fire-and-forget handlers saw. Every behaviour a caller can meet has a name here.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use serde_json::{Value, json};
use velo::{Context, Handler, Velo};

use crate::lines::event;
use crate::payload::checksum;

/// Messages seen by `count` and `ordered`, in the order their handlers started.
#[derive(Default)]
pub struct Seen {
    counted: Mutex<Vec<Value>>,
    ordered: Mutex<Vec<Value>>,
}

impl Seen {
    /// What was seen since the last look.
    pub fn take(&self) -> Value {
        let counted = std::mem::take(&mut *self.counted.lock().unwrap());
        let ordered = std::mem::take(&mut *self.ordered.lock().unwrap());
        json!({ "counted": counted, "ordered": ordered })
    }
}

fn describe(ctx: &Context) -> Value {
    json!({
        "length": ctx.payload.len(),
        "sum": checksum(&ctx.payload),
        "headers": ctx.headers,
        "sender": ctx.sender_worker_id().as_u64(),
    })
}

/// How long `ordered` works on each message: long enough that disorder would show.
const ORDERED_WORK: Duration = Duration::from_micros(200);

pub fn register(node: &Velo, seen: &Arc<Seen>) -> Result<()> {
    node.register_handler(Handler::unary_handler("echo", |ctx: Context| Ok(Some(ctx.payload))).build())?;
    node.register_handler(
        Handler::unary_handler("describe", |ctx: Context| {
            Ok(Some(Bytes::from(describe(&ctx).to_string())))
        })
        .build(),
    )?;
    node.register_handler(Handler::unary_handler("nothing", |_: Context| Ok(None)).build())?;
    node.register_handler(Handler::unary_handler("fail", |_: Context| Err(anyhow!("failed as asked"))).build())?;
    node.register_handler(Handler::am_handler("fail_am", |_: Context| Err(anyhow!("failed as asked"))).build())?;
    node.register_handler(
        Handler::unary_handler("panic", |_: Context| -> Result<Option<Bytes>> {
            panic!("panicked as asked")
        })
        .build(),
    )?;
    node.register_handler(
        Handler::unary_handler("panic_ordered", |_: Context| -> Result<Option<Bytes>> {
            panic!("panicked as asked")
        })
        .ordered()
        .build(),
    )?;
    node.register_handler(
        Handler::unary_handler_async("slow", |ctx: Context| async move {
            let ms: u64 = std::str::from_utf8(&ctx.payload)?.parse()?;
            event("slow_started", json!(ms));
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(Some(ctx.payload))
        })
        .build(),
    )?;
    let count = Arc::clone(seen);
    node.register_handler(
        Handler::am_handler("count", move |ctx: Context| {
            count.counted.lock().unwrap().push(describe(&ctx));
            Ok(())
        })
        .build(),
    )?;
    let order = Arc::clone(seen);
    node.register_handler(
        Handler::am_handler_async("ordered", move |ctx: Context| {
            let order = Arc::clone(&order);
            async move {
                order.ordered.lock().unwrap().push(describe(&ctx));
                tokio::time::sleep(ORDERED_WORK).await;
                Ok(())
            }
        })
        .ordered()
        .build(),
    )?;
    node.register_handler(
        Handler::typed_unary("typed", |ctx: velo::TypedContext<TypedRequest>| {
            Ok(json!({ "sum": ctx.input.a + ctx.input.b, "text": ctx.input.text }))
        })
        .build(),
    )?;
    Ok(())
}

#[derive(serde::Deserialize)]
struct TypedRequest {
    a: u64,
    b: u64,
    text: Option<String>,
}
