//! Programs that read the events of sessions.

use serde_json::Value;

use super::entry::new_token;
use super::http::Events;
use super::socket::Socket;
use super::{Served, model_that};

/// Reads events until one of this kind arrives; returns all kinds.
fn until(events: &mut Events, kind: &str) -> Vec<String> {
    let mut kinds = Vec::new();
    loop {
        let event = events.receive();
        let own = event["type"].as_str().unwrap().to_owned();
        assert!(event["properties"].is_object(), "{event}");
        let ends = own == kind;
        kinds.push(own);
        if ends {
            return kinds;
        }
    }
}

/// Observers receive the events of their own user's sessions, need the same token as an editor, and
/// see only the session that they ask for.
pub(super) fn observers_receive_events_of_their_own_user() {
    let (project, model) = model_that("text: Hello.");
    let file = project.path("~/tokens").display().to_string();
    let ada = new_token(&project, &file, "laptop", &["--user", "ada"]);
    let bob = new_token(&project, &file, "phone", &["--user", "bob"]);
    let root = project.cwd().display().to_string();
    let served = Served::start(&project, &["--token-file", &file, "--root", &root]);
    let open = |token: &str, query: &str| {
        let header = format!("Authorization: Bearer {token}");
        Events::open_at(&served, &format!("/events{query}"), &header)
    };
    for (token, query, status) in [("wrong", "", "401"), (&ada, "?session=../x", "400")] {
        let (first, _) = open(token, query);
        assert!(first.starts_with(&format!("HTTP/1.1 {status}")), "{first}");
    }
    let posted = served.http("POST /events HTTP/1.1", "");
    assert!(posted.starts_with("HTTP/1.1 401"), "{posted}");
    let (_, mut hers) = open(&ada, "");
    let (_, mut his) = open(&bob, "");
    assert_eq!(hers.receive()["type"], "server.connected");
    assert_eq!(his.receive()["type"], "server.connected");

    let mut socket = Socket::try_open(&served.address, &format!("Authorization: Bearer {ada}\r\n"));
    socket.hello();
    let session = socket.session(&project);
    let created = hers.receive();
    assert_eq!(created["type"], "session.created");
    assert_eq!(created["properties"]["info"]["id"], Value::from(&*session));
    let (_, mut own) = open(&ada, &format!("?session={session}"));
    let (_, mut other) = open(&ada, "?session=ses_0000000000000000aaaaaaaaaa");
    assert_eq!(own.receive()["type"], "server.connected");
    assert_eq!(other.receive()["type"], "server.connected");
    socket.prompt(2, &session, "Hi.");
    for events in [&mut hers, &mut own] {
        // How many events are merged depends on the reader.
        let kinds = until(events, "session.idle");
        for kind in ["session.status", "message.updated", "message.part.updated"] {
            assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
        }
    }
    socket.answer(2);
    // Events of another user reach that user only, and begin with the own session.
    let mut socket = Socket::try_open(&served.address, &format!("Authorization: Bearer {bob}\r\n"));
    socket.hello();
    let session = socket.session(&project);
    let first = his.receive();
    assert_eq!(first["properties"]["sessionID"], Value::from(&*session));
    drop(other);
    // A client that was cut off continues after the last event that it has received, and one that
    // waited for the server begins with the first.
    let again = |last: &str| {
        let headers = format!("Authorization: Bearer {ada}\r\nLast-Event-ID: {last}");
        Events::open_at(&served, "/events", &headers)
    };
    let (first, _) = again("x");
    assert!(first.starts_with("HTTP/1.1 400"), "{first}");
    let last = hers.1.clone();
    let (_, mut all) = again("0");
    assert_eq!(all.receive()["type"], "server.connected");
    assert_eq!(all.receive()["type"], "session.created");
    until(&mut all, "session.idle");
    assert_eq!(all.1, last);
    let (_, mut rest) = again(&last);
    assert_eq!(rest.receive()["type"], "server.connected");
    let mut socket = Socket::try_open(&served.address, &format!("Authorization: Bearer {ada}\r\n"));
    socket.hello();
    socket.session(&project);
    let kinds = until(&mut rest, "session.created");
    assert!(
        !kinds.iter().any(|kind| kind.starts_with("message.")),
        "{kinds:?}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}
