// The peer's ends of its pipes: a request is one JSON line on stdin, an answer or an event one on stdout. It must never mix two
// lines, and never write anything else to stdout.

use std::io::Write;
use std::sync::Mutex;

use serde_json::{Value, json};

static STDOUT: Mutex<()> = Mutex::new(());

fn print(line: &Value) {
    let _one_at_a_time = STDOUT.lock().unwrap();
    let mut out = std::io::stdout().lock();
    // The driver is gone: nobody is left to tell.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

pub fn answer(id: u64, result: anyhow::Result<Value>) {
    print(&match result {
        Ok(value) => json!({ "id": id, "ok": value }),
        Err(error) => json!({ "id": id, "error": format!("{error:#}") }),
    });
}

pub fn event(name: &str, value: Value) {
    print(&json!({ "event": name, "value": value }));
}
