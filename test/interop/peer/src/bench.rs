// One side of a benchmark run: asked by JSON lines, as the Node side is (bench/node-side.ts). It measures nothing but its own half:
// counts, first and last receipt, latencies, CPU time.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use velo::streaming::{FlushPolicy, MuxConfig, StreamAnchor, StreamAnchorHandle, StreamFrame, StreamSender};
use velo::transports::tcp::TcpTransportBuilder;
use velo::{Handler, PeerInfo, ShutdownPolicy, Velo};

use crate::lines::answer;

const TEXT: &str = "token";
const NUMBER: u32 = 12_345;
const LOGPROB: f64 = -0.5;

/// What travels: MessagePack writes it as an array of four.
#[derive(Serialize, Deserialize)]
struct Token {
    t: String,
    i: u32,
    lp: f64,
    /// CLOCK_MONOTONIC in nanoseconds; 0 where nobody asks for the latency.
    ts: u64,
}

impl Token {
    fn new(ts: u64) -> Self {
        Token {
            t: TEXT.to_owned(),
            i: NUMBER,
            lp: LOGPROB,
            ts,
        }
    }
}

/// CLOCK_MONOTONIC, which all processes of a machine share.
fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// CPU time of all threads, microseconds.
fn cpu_us() -> u64 {
    // SAFETY: all zero is a valid rusage, and getrusage only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// What arrived: items of streams, or messages.
#[derive(Default)]
struct Sink {
    total: AtomicU64,
    wrong: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    expected: AtomicU64,
    latencies: Mutex<Vec<u64>>,
    full: tokio::sync::Notify,
}

impl Sink {
    fn arm(&self, expected: u64) {
        self.total.store(0, Ordering::SeqCst);
        self.wrong.store(0, Ordering::SeqCst);
        self.first_ns.store(0, Ordering::SeqCst);
        self.last_ns.store(0, Ordering::SeqCst);
        self.latencies.lock().unwrap().clear();
        self.expected.store(expected, Ordering::SeqCst);
    }

    fn one(&self) {
        let count = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        if count == 1 {
            self.first_ns.store(now_ns(), Ordering::Relaxed);
        }
        if count == self.expected.load(Ordering::Relaxed) {
            self.last_ns.store(now_ns(), Ordering::Relaxed);
            self.full.notify_waiters();
        }
    }

    fn token(&self, token: &Token) {
        if token.t != TEXT || token.i != NUMBER || token.lp != LOGPROB {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        if token.ts != 0 {
            let late = now_ns().saturating_sub(token.ts);
            self.latencies.lock().unwrap().push(late);
        }
        self.one();
    }

    /// Names what an open-ended phase comes to, once that is known.
    fn expect(&self, expected: u64) {
        self.expected.store(expected, Ordering::SeqCst);
        if self.total.load(Ordering::SeqCst) >= expected {
            self.last_ns.store(now_ns(), Ordering::SeqCst);
            self.full.notify_waiters();
        }
    }

    async fn wait(&self) -> Value {
        loop {
            let notified = self.full.notified();
            if self.total.load(Ordering::SeqCst) >= self.expected.load(Ordering::SeqCst) {
                break;
            }
            notified.await;
        }
        while self.last_ns.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut latencies = self.latencies.lock().unwrap().clone();
        latencies.sort_unstable();
        let at = |q: f64| {
            let rank = ((q * latencies.len() as f64) as usize).min(latencies.len().saturating_sub(1));
            latencies.get(rank).map(|ns| *ns as f64 / 1000.0)
        };
        json!({
            "total": self.total.load(Ordering::SeqCst),
            "wrong": self.wrong.load(Ordering::SeqCst),
            "firstNs": self.first_ns.load(Ordering::SeqCst),
            "lastNs": self.last_ns.load(Ordering::SeqCst),
            "p50Us": at(0.5),
            "p99Us": at(0.99),
        })
    }
}

struct Side {
    velo: Arc<Velo>,
    sink: Arc<Sink>,
    senders: tokio::sync::Mutex<Vec<StreamSender<Token>>>,
    readers: tokio::sync::Mutex<Vec<tokio::task::JoinHandle<bool>>>,
    resting: Arc<AtomicBool>,
}

#[derive(Deserialize)]
struct Request {
    id: u64,
    op: String,
    #[serde(default)]
    args: Value,
}

fn number(args: &Value, name: &str) -> Result<u64> {
    args[name].as_u64().ok_or_else(|| anyhow!("{name} is no number"))
}

fn handle_of(value: &Value) -> Result<StreamAnchorHandle> {
    let half =
        |name: &str| -> Result<u128> { Ok(value[name].as_str().context("half of a handle")?.parse::<u64>()? as u128) };
    Ok(StreamAnchorHandle::from_u128((half("hi")? << 64) | half("lo")?))
}

async fn start(args: &Value) -> Result<Side> {
    let credit = number(args, "credit")? as u32;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let transport = Arc::new(TcpTransportBuilder::new().from_listener(listener)?.build()?);
    let velo = Velo::builder()
        .add_transport(transport)
        .stream_bind_addr(std::net::Ipv4Addr::LOCALHOST.into())
        .messenger_mux(MuxConfig {
            initial_credit: credit,
            flush_policy: FlushPolicy::Manual,
            ..MuxConfig::default()
        })?
        .build()
        .await?;
    let sink = Arc::new(Sink::default());
    let counted = sink.clone();
    velo.register_handler(Handler::unary_handler("echo", |ctx| Ok(Some(ctx.payload))).build())?;
    velo.register_handler(
        Handler::am_handler("count", move |_| {
            counted.one();
            Ok(())
        })
        .build(),
    )?;
    Ok(Side {
        velo: Arc::new(velo),
        sink,
        senders: Default::default(),
        readers: Default::default(),
        resting: Arc::new(AtomicBool::new(false)),
    })
}

async fn read(mut anchor: StreamAnchor<Token>, sink: Arc<Sink>) -> bool {
    while let Some(frame) = anchor.next().await {
        match frame {
            Ok(StreamFrame::Item(token)) => sink.token(&token),
            Ok(StreamFrame::Finalized) => return true,
            _ => return false,
        }
    }
    false
}

impl Side {
    /// Back-to-back passes, one token on every stream each, one flush per pass.
    async fn passes(&self, count: u64, ms: u64) -> Result<Value> {
        self.resting.store(false, Ordering::SeqCst);
        let senders = self.senders.lock().await;
        let started = Instant::now();
        let limit = Duration::from_millis(ms);
        let mut done = 0;
        while done < count && started.elapsed() < limit {
            for sender in senders.iter() {
                sender.send(Token::new(0)).await?;
            }
            self.velo.flush_batch();
            done += 1;
            tokio::task::yield_now().await;
        }
        self.rest();
        Ok(json!({ "passes": done }))
    }

    /// What a grant releases after the last flush waits for the next one; a decode loop has a next pass, the end of a phase has none.
    fn rest(&self) {
        if self.resting.swap(true, Ordering::SeqCst) {
            return;
        }
        let (velo, resting) = (self.velo.clone(), self.resting.clone());
        tokio::spawn(async move {
            while resting.load(Ordering::SeqCst) {
                velo.flush_batch();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    async fn lone(&self, count: u64, every_ms: u64) -> Result<Value> {
        self.resting.store(false, Ordering::SeqCst);
        let senders = self.senders.lock().await;
        let sender = senders.first().context("no stream")?;
        let mut ticks = tokio::time::interval(Duration::from_millis(every_ms));
        for _ in 0..count {
            ticks.tick().await;
            sender.send(Token::new(now_ns())).await?;
            self.velo.flush_batch();
        }
        Ok(Value::Null)
    }

    async fn unary(&self, peer: &PeerInfo, args: &Value) -> Result<Value> {
        let (count, in_flight, bytes) = (
            number(args, "count")?,
            number(args, "inFlight")?,
            number(args, "bytes")?,
        );
        let payload = Bytes::from(vec![7u8; bytes as usize]);
        let left = Arc::new(AtomicU64::new(count));
        let started = Instant::now();
        let mut callers = Vec::new();
        for _ in 0..in_flight {
            let (velo, left, payload, instance) =
                (self.velo.clone(), left.clone(), payload.clone(), peer.instance_id());
            callers.push(tokio::spawn(async move {
                let mut times = Vec::new();
                while left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let from = Instant::now();
                    let answer = velo
                        .unary("echo")?
                        .raw_payload(payload.clone())
                        .instance(instance)
                        .send()
                        .await?;
                    anyhow::ensure!(answer == payload, "the echo differs");
                    times.push(from.elapsed().as_nanos() as u64);
                }
                Ok::<_, anyhow::Error>(times)
            }));
        }
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.await??);
        }
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        times.sort_unstable();
        let at = |q: f64| times[((q * times.len() as f64) as usize).min(times.len() - 1)] as f64 / 1000.0;
        Ok(json!({ "ms": ms, "p50Us": at(0.5), "p99Us": at(0.99) }))
    }

    async fn fire(&self, peer: &PeerInfo, args: &Value) -> Result<Value> {
        let payload = Bytes::from(vec![7u8; number(args, "bytes")? as usize]);
        for _ in 0..number(args, "count")? {
            self.velo
                .am_send("count")?
                .raw_payload(payload.clone())
                .instance(peer.instance_id())
                .send()
                .await?;
        }
        Ok(Value::Null)
    }

    async fn answer(&self, op: &str, args: &Value) -> Result<Value> {
        match op {
            "peer" => {
                self.velo.register_peer(serde_json::from_value(args.clone())?)?;
                Ok(Value::Null)
            }
            "anchors" => {
                let mut handles = Vec::new();
                let mut readers = self.readers.lock().await;
                for _ in 0..number(args, "count")? {
                    let anchor = self.velo.create_anchor::<Token>();
                    let (hi, lo) = (
                        (anchor.handle().as_u128() >> 64) as u64,
                        anchor.handle().as_u128() as u64,
                    );
                    handles.push(json!({ "hi": hi.to_string(), "lo": lo.to_string() }));
                    readers.push(tokio::spawn(read(anchor, self.sink.clone())));
                }
                Ok(json!(handles))
            }
            "attach" => {
                let mut senders = self.senders.lock().await;
                for handle in args.as_array().context("no handles")? {
                    senders.push(self.velo.attach_anchor::<Token>(handle_of(handle)?).await?);
                }
                Ok(Value::Null)
            }
            "passes" => self.passes(number(args, "passes")?, number(args, "ms")?).await,
            "lone" => self.lone(number(args, "count")?, number(args, "everyMs")?).await,
            "unary" => self.unary(&serde_json::from_value(args["peer"].clone())?, args).await,
            "fire" => self.fire(&serde_json::from_value(args["peer"].clone())?, args).await,
            "arm" => {
                self.sink.arm(number(args, "expected")?);
                Ok(Value::Null)
            }
            "expect" => {
                self.sink.expect(number(args, "expected")?);
                Ok(Value::Null)
            }
            "full" => Ok(self.sink.wait().await),
            "cpu" => Ok(json!({ "us": cpu_us(), "ns": now_ns() })),
            "finish" => {
                self.resting.store(false, Ordering::SeqCst);
                for sender in self.senders.lock().await.drain(..) {
                    sender.finalize().map_err(|error| anyhow!("{error}"))?;
                }
                self.velo.flush_batch();
                Ok(Value::Null)
            }
            "ended" => {
                let mut finalized = 0;
                for reader in self.readers.lock().await.drain(..) {
                    finalized += u64::from(reader.await?);
                }
                Ok(json!(finalized))
            }
            "close" => {
                self.velo
                    .graceful_shutdown(ShutdownPolicy::Timeout(Duration::from_secs(1)))
                    .await;
                Ok(Value::Null)
            }
            other => Err(anyhow!("no operation {other}")),
        }
    }
}

pub async fn serve() -> Result<()> {
    let (lines, mut requests) = tokio::sync::mpsc::unbounded_channel::<String>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut side: Option<Arc<Side>> = None;
    while let Some(line) = requests.recv().await {
        let Request { id, op, args } = serde_json::from_str(&line)?;
        if op == "start" {
            match start(&args).await {
                Ok(started) => {
                    answer(id, Ok(serde_json::to_value(started.velo.peer_info())?));
                    side = Some(Arc::new(started));
                }
                Err(error) => answer(id, Err(error)),
            }
        } else if let Some(side) = side.clone() {
            tokio::spawn(async move {
                let result = side.answer(&op, &args).await;
                answer(id, result);
            });
        } else {
            answer(id, Err(anyhow!("not started")));
        }
    }
    Ok(())
}
