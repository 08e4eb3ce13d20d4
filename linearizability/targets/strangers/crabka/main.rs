//! Serves one node of crabka from a `server.properties`, as Kafka's start script does.
//!
//! The crate's own program has a fixed controller port, so that two nodes cannot run on one machine. Everything that is not
//! named in the file keeps the value that program gives it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crabka_broker::{BootstrapMode, Broker, BrokerConfig};

type Failure = Box<dyn std::error::Error>;

const LEADERSHIP_MOVES_WITHIN: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let file = std::env::args().nth(1).ok_or("which server.properties?")?;
    let properties = Properties::read(Path::new(&file))?;
    let telemetry = crabka_broker::telemetry::init(
        crabka_broker::telemetry::OtlpConfig::from_env(
            |name| std::env::var(name).ok(),
            properties.required("node.id")?,
            env!("CARGO_PKG_VERSION"),
            "crabka-broker",
        ),
        "crabka_broker=info,crabka_log=info,info",
        "info",
        "crabka-broker",
    )?;
    let broker = Broker::start(properties.config()?).await?;
    let mut failed = broker.should_shutdown_rx();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = failed.wait_for(|has_failed| *has_failed) => {}
    }
    if let Err(error) = broker.controlled_shutdown(LEADERSHIP_MOVES_WITHIN).await {
        eprintln!("the shutdown was not a controlled one: {error}");
    }
    telemetry.shutdown();
    Ok(())
}

/// The lines `name=value` of a file.
struct Properties(BTreeMap<String, String>);

impl Properties {
    fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file)?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(Self(pairs.map(|(name, value)| (name.into(), value.into())).collect()))
    }

    fn required(&self, name: &str) -> Result<&str, Failure> {
        Ok(self.0.get(name).ok_or(format!("{name} is missing"))?)
    }

    /// Hands a property's value over, where the file has it.
    fn number(&self, name: &str, mut take: impl FnMut(i64)) -> Result<(), Failure> {
        if let Some(value) = self.0.get(name) {
            take(value.parse().map_err(|error| format!("{name}={value}: {error}"))?);
        }
        Ok(())
    }

    /// The address of a listener in `listeners=NAME://HOST:PORT,…`.
    fn address(&self, listener: &str) -> Result<SocketAddr, Failure> {
        let prefix = format!("{listener}://");
        let listeners = self.required("listeners")?;
        let found = listeners.split(',').find_map(|each| each.strip_prefix(&prefix));
        Ok(found.ok_or(format!("no listener {listener}"))?.parse()?)
    }

    fn voters(&self) -> Result<Vec<(u64, String)>, Failure> {
        let voters = self.required("controller.quorum.voters")?.split(',');
        voters
            .map(|voter| {
                let (id, address) = voter.split_once('@').ok_or(format!("{voter} is no voter"))?;
                Ok((id.parse()?, address.into()))
            })
            .collect()
    }

    fn config(&self) -> Result<BrokerConfig, Failure> {
        let node: u32 = self.required("node.id")?.parse()?;
        let folder = PathBuf::from(self.required("log.dirs")?);
        let listener = self.address("PLAINTEXT")?;
        let is_new = !crabka_raft::metadata_log_nonempty(&folder.join("__cluster_metadata"));
        let mut config = BrokerConfig {
            broker_id: i32::try_from(node)?,
            node_id: u64::from(node),
            directory_id: uuid::Uuid::from_u128(u128::from(node)),
            listen_addr: listener,
            advertised_listener: listener.to_string(),
            controller_listen_addr: self.address("CONTROLLER")?,
            controller_quorum_voters: self.voters()?,
            audit_spool_dir: folder.join("audit-spool"),
            bootstrap_mode: if is_new { BootstrapMode::Bootstrap } else { BootstrapMode::Rejoin },
            cluster_id: Some(self.required("cluster.uuid")?.parse()?),
            rack: self.0.get("broker.rack").cloned(),
            log_dir: folder,
            ..BrokerConfig::default()
        };
        self.apply_to(&mut config)?;
        Ok(config)
    }

    /// What linearizability/targets/strangers/crabka.py lists as honoured.
    fn apply_to(&self, config: &mut BrokerConfig) -> Result<(), Failure> {
        let span = |milliseconds: i64| Duration::from_millis(milliseconds.unsigned_abs());
        let limit = |value: i64| u64::try_from(value).ok();
        self.number("log.segment.bytes", |value| config.log_config.segment_bytes = value.unsigned_abs())?;
        self.number("log.roll.ms", |value| config.log_config.segment_ms = span(value))?;
        self.number("log.retention.ms", |value| {
            config.log_config.retention_ms = limit(value).map(Duration::from_millis);
        })?;
        self.number("log.retention.bytes", |value| config.log_config.retention_bytes = limit(value))?;
        self.number("log.cleaner.delete.retention.ms", |value| config.log_config.delete_retention_ms = span(value))?;
        self.number("broker.heartbeat.interval.ms", |value| config.heartbeat_interval_ms = value.unsigned_abs())?;
        self.number("broker.session.timeout.ms", |value| config.heartbeat_timeout_ms = value.unsigned_abs())?;
        self.number("replica.lag.time.max.ms", |value| config.replica_lag_time_max_ms = value.unsigned_abs())?;
        self.number("max.incremental.fetch.session.cache.slots", |value| {
            config.max_incremental_fetch_session_cache_slots = usize::try_from(value).unwrap_or_default();
        })?;
        self.number("leader.imbalance.check.interval.seconds", |value| {
            config.leader_imbalance_check_interval_secs = value.unsigned_abs();
        })?;
        self.number("transaction.abort.timed.out.transaction.cleanup.interval.ms", |value| {
            config.txn_abort_cleanup_interval = span(value);
        })?;
        let groups = &mut config.next_gen_consumer_group;
        self.number("group.consumer.session.timeout.ms", |value| groups.session_timeout = span(value))?;
        self.number("group.consumer.heartbeat.interval.ms", |value| groups.heartbeat_interval = span(value))?;
        self.number("group.consumer.min.session.timeout.ms", |value| groups.min_session_timeout = span(value))?;
        self.number("group.consumer.min.heartbeat.interval.ms", |value| groups.min_heartbeat_interval = span(value))?;
        if let Some(value) = self.0.get("auto.leader.rebalance.enable") {
            config.auto_leader_rebalance_enable = value == "true";
        }
        Ok(())
    }
}
