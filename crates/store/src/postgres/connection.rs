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
use crate::{Error, StoreMeters};
use base::id::SessionId;
use base::store_location::DatabaseLocation;

/// The time without further attempts after the database could not be reached.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// The prefix of a notification that requests the end of a session's turn.
pub(super) const CANCEL: &str = "cancel ";

/// A message that the database sends without a query.
pub(super) enum ConnectionEvent {
    /// Another process requests a session of ours.
    Wanted(SessionId),
    /// A request to end a session's turn.
    Cancel(SessionId),
    Closed,
}

pub(super) struct OpenConnection {
    pub(super) client: Client,
    pub(super) write: Statement,
}

type Opening = Shared<LocalBoxFuture<'static, Result<Rc<OpenConnection>, DatabaseFault>>>;

enum State {
    Idle,
    Opening(Opening),
    Up(Rc<OpenConnection>),
    Down { tried: Instant, reason: String },
}

pub(super) struct DatabaseConnection {
    address: Result<Rc<DatabaseAddress>, String>,
    instance: String,
    events: UnboundedSender<ConnectionEvent>,
    state: RefCell<State>,
    /// The time since which the database has been unreachable, or has accepted no writes.
    away: Cell<Option<Instant>>,
    meters: Arc<StoreMeters>,
}

impl DatabaseConnection {
    pub(super) fn new(
        place: &DatabaseLocation,
        instance: &str,
        events: UnboundedSender<ConnectionEvent>,
        meters: Arc<StoreMeters>,
    ) -> Self {
        let address = address::parse(place).map(Rc::new);
        Self {
            address,
            instance: instance.into(),
            events,
            state: RefCell::new(State::Idle),
            away: Cell::new(None),
            meters,
        }
    }

    pub(super) fn address(&self) -> Result<&DatabaseAddress, Error> {
        self.address
            .as_deref()
            .map_err(|e| Error::Unwritable(e.clone()))
    }

    /// Returns the time for which the database has been unreachable.
    pub(super) fn away(&self) -> Option<Duration> {
        self.away.get().map(|since| since.elapsed())
    }

    /// Returns whether there is no connection, and a statement has failed because of that.
    pub(super) fn is_away(&self) -> bool {
        self.away.get().is_some() && !matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Records that the database has accepted the writes.
    pub(super) fn took(&self) {
        self.away.set(None);
    }

    /// Returns the reason why it is unreachable.
    pub(super) fn reason(&self) -> String {
        match &*self.state.borrow() {
            State::Down { reason, .. } => reason.clone(),
            _ => "it does not answer".into(),
        }
    }

    /// Handles the end of a connection, which may be an earlier one than the present.
    pub(super) fn lost(&self) {
        let ended = matches!(&*self.state.borrow(), State::Up(open) if open.client.is_closed());
        if ended {
            self.down("the connection was closed");
        }
    }

    /// Returns the present connection, or opens one.
    pub(super) async fn open(&self) -> Result<Rc<OpenConnection>, DatabaseFault> {
        let opening = {
            let mut state = self.state.borrow_mut();
            match &*state {
                State::Up(open) if !open.client.is_closed() => return Ok(open.clone()),
                State::Opening(opening) => opening.clone(),
                State::Down { tried, reason } if tried.elapsed() < RECONNECT_PAUSE => {
                    return Err(DatabaseFault::Away(reason.clone()));
                }
                State::Up(_) | State::Down { .. } | State::Idle => {
                    let address = self.address.clone().map_err(Error::Unwritable)?;
                    let opening =
                        open_connection(address, self.instance.clone(), self.events.clone())
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
                    self.meters.connected();
                }
                self.away.set(None);
                *self.state.borrow_mut() = State::Up(open.clone());
            }
            Err(fault) => self.down(&fault.reason()),
        }
        opened
    }

    /// Marks the database as unreachable: the next statement opens a new connection.
    pub(super) fn down(&self, reason: &str) {
        if self.away.get().is_none() {
            tracing::warn!("the database is away: {reason}");
            self.away.set(Some(Instant::now()));
        }
        *self.state.borrow_mut() = State::Down {
            tried: Instant::now(),
            reason: reason.into(),
        };
    }

    /// Awaits the answer to a statement, with a timeout.
    pub(super) async fn run<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DatabaseFault> {
        let answered = match timeout(DATABASE_TIMEOUT, statement).await {
            Ok(answered) => answered.map_err(DatabaseFault::from),
            Err(_) => Err(DatabaseFault::Away(format!(
                "no answer for {} s",
                DATABASE_TIMEOUT.as_secs()
            ))),
        };
        match &answered {
            Err(DatabaseFault::Away(reason)) => self.down(reason),
            Err(DatabaseFault::Full(reason)) if self.away.get().is_none() => {
                tracing::warn!("the database has no room: {reason}");
                self.away.set(Some(Instant::now()));
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
            // Requests for sessions are then seen when the lease is renewed.
            tracing::info!("the database cannot notify: {e}");
        }
        let write = client.prepare_typed(rows::ROWS, &rows::TYPES).await?;
        tracing::info!("connected to the database");
        Ok(Rc::new(OpenConnection { client, write }))
    };
    let late = || {
        DatabaseFault::Away(format!(
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
                DatabaseFault::Refused(reason) => DatabaseFault::Away(reason),
                fault => fault,
            })?;
    tokio::task::spawn_local(drive(connection, events));
    Ok(client)
}

/// Transfers data in both directions until the connection ends.
async fn drive<S>(mut connection: Connection<Socket, S>, events: UnboundedSender<ConnectionEvent>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The receiver is dropped when the store has ended.
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(note) = message {
            let event = match note.payload().strip_prefix(CANCEL) {
                Some(session) => ConnectionEvent::Cancel(SessionId::new(session)),
                None => ConnectionEvent::Wanted(SessionId::new(note.payload())),
            };
            events.send(event).ok();
        }
    }
    events.send(ConnectionEvent::Closed).ok();
}
