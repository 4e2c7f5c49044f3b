// A real velo node on the other end of velomux's interop tests. One binary, several modes; the mode is the first argument.

mod bench;
mod calls;
mod data;
mod handlers;
mod lines;
mod node;
mod payload;
mod peer;
mod streams;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match std::env::args().nth(1).as_deref() {
        None | Some("peer") => runtime.block_on(peer::serve()),
        Some("bench") => runtime.block_on(bench::serve()),
        Some(mode) => anyhow::bail!("there is no mode {mode}"),
    }
}
