// Starts the velo node: transports and the options that tests turn. It must not serve or call anything.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use prometheus::Registry;
use serde::Deserialize;
use velo::discovery::{FilesystemPeerDiscovery, FilesystemRegistrationGuard};
use velo::streaming::{AutoFlush, FlushPolicy, MuxConfig, ReservationConfig};
use velo::transports::tcp::TcpTransportBuilder;
use velo::transports::uds::UdsTransportBuilder;
use velo::{Velo, VeloMetrics};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeOptions {
    /// A TCP listener on loopback. False: Unix socket only.
    tcp: bool,
    /// Connections that this node dials per peer.
    lanes: u16,
    /// Path of a Unix socket, preferred to TCP.
    uds: Option<String>,
    mux: bool,
    initial_credit: Option<u32>,
    slot_byte_budget: Option<u32>,
    max_batch_bytes: Option<usize>,
    reply_linger_ms: Option<u64>,
    async_open_ack: bool,
    flush: Flush,
    prebind_timeout_ms: Option<u64>,
    /// Path of a directory of peers: the node asks it and enters itself.
    discovery: Option<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            tcp: true,
            lanes: 1,
            uds: None,
            mux: true,
            initial_credit: None,
            slot_byte_budget: None,
            max_batch_bytes: None,
            reply_linger_ms: None,
            async_open_ack: false,
            flush: Flush::Auto,
            prebind_timeout_ms: None,
            discovery: None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Flush {
    #[default]
    Auto,
    Manual,
    LingerMs(u64),
}

fn mux_config(options: &NodeOptions) -> MuxConfig {
    let mut config = MuxConfig {
        enabled: options.mux,
        async_open_ack: options.async_open_ack,
        ..MuxConfig::default()
    };
    if let Some(credit) = options.initial_credit {
        config.initial_credit = credit;
    }
    if let Some(bytes) = options.slot_byte_budget {
        config.slot_byte_budget = bytes;
    }
    if let Some(bytes) = options.max_batch_bytes {
        config.max_batch_bytes = bytes;
    }
    if let Some(ms) = options.reply_linger_ms {
        config.reply_linger = Duration::from_millis(ms);
    }
    config.flush_policy = match options.flush {
        Flush::Auto => FlushPolicy::default(),
        Flush::Manual => FlushPolicy::Manual,
        Flush::LingerMs(ms) => FlushPolicy::Auto(AutoFlush {
            on_admission: false,
            max_linger: Some(Duration::from_millis(ms)),
        }),
    };
    config
}

/// The node, and its entry in a directory, which leaves with it.
pub struct Started {
    pub node: Velo,
    pub entry: Option<FilesystemRegistrationGuard>,
}

/// Everything binds to loopback.
pub async fn start(options: NodeOptions, registry: &Registry) -> Result<Started> {
    let mut builder = Velo::builder()
        .metrics(Arc::new(VeloMetrics::register(registry)?))
        .stream_bind_addr("127.0.0.1".parse()?)
        .messenger_mux(mux_config(&options))?;
    if let Some(ms) = options.prebind_timeout_ms {
        let mut reservation = ReservationConfig::default();
        reservation.prebind_timeout = Duration::from_millis(ms);
        builder = builder.reservation_config(reservation);
    }
    if let Some(path) = &options.uds {
        builder = builder.add_transport(Arc::new(UdsTransportBuilder::new().socket_path(path).build()?));
    }
    if options.tcp {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no loopback")?;
        let transport = TcpTransportBuilder::new()
            .from_listener(listener)?
            .lanes(options.lanes)
            .build()?;
        builder = builder.add_transport(Arc::new(transport));
    }
    let directory = options.discovery.map(FilesystemPeerDiscovery::new).transpose()?;
    if let Some(directory) = &directory {
        builder = builder.discovery(Arc::new(directory.clone()));
    }
    let node = builder.build().await?;
    let entry = match &directory {
        Some(directory) => Some(directory.register_peer_info(&node.peer_info()).await?),
        None => None,
    };
    Ok(Started { node, entry })
}
