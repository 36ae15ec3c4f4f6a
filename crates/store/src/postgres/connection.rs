//! The connection to the database: opened on demand, and again after a failure.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket, Statement};

use super::address::{DATABASE_TIMEOUT, DatabaseAddress, Privacy};
use super::fault::DatabaseFault;
use super::{address, rows, schema, tls};
use crate::{Error, StoreMetrics};
use base::id::SessionId;
use base::store_location::DatabaseLocation;

/// The minimum time between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// The prefix of a notification that requests the end of a session's turn.
pub(super) const CANCEL_PREFIX: &str = "cancel ";

/// An event of the connection that no query caused.
pub(super) enum ConnectionEvent {
    /// Another process asks for a session that this process owns.
    SessionRequested(SessionId),
    /// A request to end a session's turn.
    CancelTurn(SessionId),
    Closed,
}

pub(super) struct OpenConnection {
    pub(super) client: Client,
    /// The prepared statement that writes a batch of rows.
    pub(super) write_statement: Statement,
}

type OpeningFuture = Shared<LocalBoxFuture<'static, Result<Rc<OpenConnection>, DatabaseFault>>>;

enum State {
    Idle,
    Opening(OpeningFuture),
    Up(Rc<OpenConnection>),
    Down { tried_at: Instant, reason: String },
}

pub(super) struct DatabaseConnection {
    address: Result<Rc<DatabaseAddress>, String>,
    /// The unique id of this process in the table `owner`.
    instance_id: String,
    events: UnboundedSender<ConnectionEvent>,
    state: RefCell<State>,
    /// The time since which the database has been unreachable, or has accepted no writes.
    outage_since: Cell<Option<Instant>>,
    metrics: Arc<StoreMetrics>,
}

impl DatabaseConnection {
    pub(super) fn new(
        location: &DatabaseLocation,
        instance: &str,
        events: UnboundedSender<ConnectionEvent>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let address = address::parse(location).map(Rc::new);
        Self {
            address,
            instance_id: instance.into(),
            events,
            state: RefCell::new(State::Idle),
            outage_since: Cell::new(None),
            metrics,
        }
    }

    pub(super) fn address(&self) -> Result<&DatabaseAddress, Error> {
        self.address
            .as_deref()
            .map_err(|e| Error::Unwritable(e.clone()))
    }

    /// Returns the time since the database became unreachable or stopped accepting writes.
    pub(super) fn outage(&self) -> Option<Duration> {
        self.outage_since.get().map(|since| since.elapsed())
    }

    /// True if there is no connection, because opening one failed or the last one ended.
    pub(super) fn is_unreachable(&self) -> bool {
        self.outage_since.get().is_some() && !matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Records that the database has accepted a write, which ends an outage.
    pub(super) fn record_accepted_write(&self) {
        self.outage_since.set(None);
    }

    /// Returns the reason why the database is unreachable.
    pub(super) fn outage_reason(&self) -> String {
        match &*self.state.borrow() {
            State::Down { reason, .. } => reason.clone(),
            _ => "it does not answer".into(),
        }
    }

    /// Handles the end of a connection. If it was not the current one, does nothing.
    pub(super) fn handle_close(&self) {
        let ended = matches!(&*self.state.borrow(), State::Up(open) if open.client.is_closed());
        if ended {
            self.mark_unreachable("the connection was closed");
        }
    }

    /// Returns the current connection, or opens one. Fails without an attempt within
    /// [`RECONNECT_INTERVAL`] of a failed one.
    pub(super) async fn open(&self) -> Result<Rc<OpenConnection>, DatabaseFault> {
        let opening = {
            let mut state = self.state.borrow_mut();
            match &*state {
                State::Up(open) if !open.client.is_closed() => return Ok(open.clone()),
                State::Opening(opening) => opening.clone(),
                State::Down {
                    tried_at: tried,
                    reason,
                } if tried.elapsed() < RECONNECT_INTERVAL => {
                    return Err(DatabaseFault::Unreachable(reason.clone()));
                }
                State::Up(_) | State::Down { .. } | State::Idle => {
                    let address = self.address.clone().map_err(Error::Unwritable)?;
                    let opening =
                        open_connection(address, self.instance_id.clone(), self.events.clone())
                            .boxed_local()
                            .shared();
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        let opened = opening.await;
        match &opened {
            Ok(open) => {
                if matches!(&*self.state.borrow(), State::Opening(_)) {
                    self.metrics.count_connection();
                }
                self.outage_since.set(None);
                *self.state.borrow_mut() = State::Up(open.clone());
            }
            Err(fault) => self.mark_unreachable(&fault.reason()),
        }
        opened
    }

    /// Marks the database as unreachable. Statements fail at once for [`RECONNECT_INTERVAL`]; the
    /// next one after that opens a new connection.
    pub(super) fn mark_unreachable(&self, reason: &str) {
        if self.outage_since.get().is_none() {
            tracing::warn!("the database is unreachable: {reason}");
            self.outage_since.set(Some(Instant::now()));
        }
        *self.state.borrow_mut() = State::Down {
            tried_at: Instant::now(),
            reason: reason.into(),
        };
    }

    /// Awaits the answer to a statement for at most [`DATABASE_TIMEOUT`], and records an outage if
    /// there is none or the disk is full.
    pub(super) async fn run<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DatabaseFault> {
        let answered = match timeout(DATABASE_TIMEOUT, statement).await {
            Ok(answered) => answered.map_err(DatabaseFault::from),
            Err(_) => Err(DatabaseFault::Unreachable(format!(
                "no answer for {} s",
                DATABASE_TIMEOUT.as_secs()
            ))),
        };
        match &answered {
            Err(DatabaseFault::Unreachable(reason)) => self.mark_unreachable(reason),
            Err(DatabaseFault::Full(reason)) if self.outage_since.get().is_none() => {
                tracing::warn!("the database has no room: {reason}");
                self.outage_since.set(Some(Instant::now()));
            }
            _ => {}
        }
        answered
    }
}

async fn open_connection(
    address: Rc<DatabaseAddress>,
    instance: String,
    events: UnboundedSender<ConnectionEvent>,
) -> Result<Rc<OpenConnection>, DatabaseFault> {
    let opened = async {
        let client = match &address.privacy {
            Privacy::Plain => connect(&address, NoTls, events).await?,
            Privacy::Tls(authority) => {
                let tls = tls::connector(authority.as_deref()).map_err(DatabaseFault::Refused)?;
                connect(&address, tls, events).await?
            }
        };
        schema::prepare(&client, &address.namespace).await?;
        if let Err(e) = client
            .batch_execute(&format!("LISTEN \"{}\"", channel(&instance)))
            .await
        {
            // Without notifications, requests for sessions are noticed when the lease is renewed.
            tracing::info!("the database cannot notify: {e}");
        }
        let write = client.prepare_typed(rows::ROWS, &rows::TYPES).await?;
        tracing::info!("connected to the database");
        Ok(Rc::new(OpenConnection {
            client,
            write_statement: write,
        }))
    };
    let late = || {
        DatabaseFault::Unreachable(format!(
            "no connection for {} s",
            DATABASE_TIMEOUT.as_secs()
        ))
    };
    timeout(DATABASE_TIMEOUT, opened)
        .await
        .map_err(|_| late())?
}

/// Returns the name of a process's notification channel.
pub(super) fn channel(instance: &str) -> String {
    format!("adjutant_{instance}")
}

async fn connect<T>(
    address: &DatabaseAddress,
    tls: T,
    events: UnboundedSender<ConnectionEvent>,
) -> Result<Client, DatabaseFault>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: 'static,
{
    let (client, connection) =
        address
            .config
            .connect(tls)
            .await
            .map_err(|e| match DatabaseFault::from(e) {
                // Whatever the problem of a connection is, nothing can be written at the moment.
                DatabaseFault::Refused(reason) => DatabaseFault::Unreachable(reason),
                fault => fault,
            })?;
    tokio::task::spawn_local(drive(connection, events));
    Ok(client)
}

/// Polls the connection until it ends, and sends its notifications as events.
async fn drive<S>(mut connection: Connection<Socket, S>, events: UnboundedSender<ConnectionEvent>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            let event = match notification.payload().strip_prefix(CANCEL_PREFIX) {
                Some(session) => ConnectionEvent::CancelTurn(SessionId::new(session)),
                None => ConnectionEvent::SessionRequested(SessionId::new(notification.payload())),
            };
            // The receiver is dropped when the store has ended.
            events.send(event).ok();
        }
    }
    events.send(ConnectionEvent::Closed).ok();
}
