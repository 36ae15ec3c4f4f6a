use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::stream::MAX_ANSWER_BYTES;
use super::*;
use crate::Delta;
use crate::anthropic::Messages;
use crate::chat::Chat;
use crate::request_target::RequestTarget;
use crate::wire_format::WireFormat;
use transcript::Finish;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const END: &str =
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn text_event(text: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":{}}}}}]}}\n\n",
        serde_json::json!(text)
    )
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// An action of the server after it has read a request.
#[derive(Clone)]
enum Act {
    Say(String),
    Bytes(Vec<u8>),
    SayByByte(String),
    ChunkByByte(String),
    Wait(u64),
    Reset,
    Close,
}

use Act::{ChunkByByte, Close, Reset, Say, SayByByte, Wait};

/// Serves one connection after another; each request is answered with the next list of actions.
#[expect(clippy::disallowed_methods, reason = "a task of a test")]
async fn serve(answers: Vec<Vec<Act>>) -> (SocketAddr, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut answers = answers.into_iter();
        let mut seen = Vec::new();
        'accept: while answers.len() > 0 {
            let (mut socket, _) = listener.accept().await.unwrap();
            while let Some(request) = read_request(&mut socket).await {
                seen.push(request);
                let Some(acts) = answers.next() else {
                    break 'accept;
                };
                for act in acts {
                    match act {
                        Say(text) => socket.write_all(text.as_bytes()).await.unwrap(),
                        Act::Bytes(bytes) => socket.write_all(&bytes).await.unwrap(),
                        SayByByte(text) => {
                            for byte in text.as_bytes() {
                                let _ = socket.write_all(&[*byte]).await;
                                let _ = socket.flush().await;
                            }
                        }
                        ChunkByByte(text) => {
                            for byte in text.as_bytes() {
                                socket
                                    .write_all(&[b"1\r\n".as_slice(), &[*byte], b"\r\n"].concat())
                                    .await
                                    .unwrap();
                            }
                        }
                        Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                        Reset => {
                            socket.set_zero_linger().unwrap();
                            continue 'accept;
                        }
                        Close => continue 'accept,
                    }
                }
                if answers.len() == 0 {
                    // The connection stays open until the client has read the last answer.
                    let _ = socket.read(&mut [0; 1]).await;
                    break 'accept;
                }
            }
        }
        seen
    });
    (address, server)
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let n = socket.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|l| {
                l.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse::<usize>()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
    }
}

fn client() -> Arc<HttpClient> {
    Arc::new(HttpClient::new(&Environment::from_vars(BTreeMap::from([
        ("HOME".into(), "/proc/nobody".into()),
    ]))))
}

fn timeouts(ms: u64) -> RequestTimeouts {
    let limit = Some(Duration::from_millis(ms));
    RequestTimeouts {
        first_byte: limit,
        idle: limit,
        total: None,
    }
}

async fn answers(
    client: &Arc<HttpClient>,
    address: SocketAddr,
    timeouts: RequestTimeouts,
) -> Vec<Result<Delta, Error>> {
    let call = HttpCall {
        url: format!("http://{address}/v1/x"),
        headers: vec![("x-key".into(), "k".into())],
        body: "{}".into(),
    };
    let target = RequestTarget {
        name: "Acme".into(),
        ..RequestTarget::default()
    };
    client
        .stream("Acme".into(), call, Chat.decoder(&target), timeouts, None)
        .collect()
        .await
}

fn text(answer: &[Result<Delta, Error>]) -> String {
    let texts = answer.iter().filter_map(|delta| match delta {
        Ok(Delta::Text { text, .. }) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

async fn one(acts: Vec<Act>, timeouts: RequestTimeouts) -> Vec<Result<Delta, Error>> {
    let (address, server) = serve(vec![acts]).await;
    let answer = answers(&client(), address, timeouts).await;
    server.abort();
    answer
}

fn stream(events: &[&str]) -> String {
    format!(
        "{HEAD}{}0\r\n\r\n",
        events.iter().map(|event| chunk(event)).collect::<String>()
    )
}

#[tokio::test]
async fn answer_is_complete_for_any_packets() {
    let events = format!(
        "{}: ping\n\n{}{END}",
        text_event("ä🦀 "),
        text_event("漢字")
    );
    let whole = vec![Say(stream(&[&events]))];
    let by_byte = vec![SayByByte(stream(&[&events]))];
    let chunks = vec![
        Say(HEAD.into()),
        ChunkByByte(events.clone()),
        Say("0\r\n\r\n".into()),
    ];
    for acts in [whole, by_byte, chunks] {
        let answer = one(acts, RequestTimeouts::default()).await;
        assert_eq!(text(&answer), "ä🦀 漢字");
        assert_eq!(answer.last(), Some(&Ok(Delta::Finish(Finish::Stop))));
    }
}

#[tokio::test]
async fn characters_split_between_packets_are_joined() {
    let mut parser = ResponseStream::new(
        "Acme".into(),
        futures_util::stream::iter(
            format!("{}{END}", text_event("ä🦀漢字"))
                .into_bytes()
                .into_iter()
                .map(|b| Ok(Bytes::from(vec![b]))),
        ),
        Chat.decoder(&RequestTarget::default()),
        RequestTimeouts::default(),
        None,
    );
    let mut seen = Vec::new();
    while let Some(delta) = parser.next().await {
        seen.push(delta);
    }
    assert_eq!(text(&seen), "ä🦀漢字");
}

#[tokio::test]
async fn connections_are_reused() {
    let answer = || vec![Say(stream(&[&text_event("x"), END]))];
    let (address, server) = serve(vec![answer(), answer(), answer()]).await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(
            text(&answers(&client, address, RequestTimeouts::default()).await),
            "x"
        );
    }
    drop(client);
    let seen = server.await.unwrap();
    // One `accept` served all requests: a second connection would never have been accepted.
    assert_eq!(seen.len(), 3);
    let head = seen[0].to_lowercase();
    assert!(
        head.starts_with("post /v1/x http/1.1")
            && head.contains("x-key: k")
            && head.contains("user-agent: adjutant/"),
        "{head}"
    );
}

#[tokio::test]
async fn failed_answer_is_an_error_after_its_partial_text() {
    let partial = chunk(&text_event("so far"));
    let cases: &[(&str, Vec<Act>, &str, &str)] = &[
        ("reset", vec![Say(format!("{HEAD}{partial}")), Wait(50), Reset], "network", "so far"),
        ("closed without the last chunk", vec![Say(format!("{HEAD}{partial}")), Wait(20), Close], "network", "so far"),
        ("closed politely without an end", vec![Say(stream(&[&text_event("so far")])), Close], "garbled", "so far"),
        (
            "half an event",
            vec![Say(stream(&[&text_event("so far"), "data: {\"choices\":[{\"del"])), Close],
            "garbled",
            "so far",
        ),
        (
            "not JSON",
            vec![Say(stream(&[&text_event("so far"), "data: {oops\n\n", &text_event("more")])), Close],
            "garbled",
            "so far",
        ),
        ("stall", vec![Say(format!("{HEAD}{partial}")), Wait(5000)], "stalled", "so far"),
        ("stall before the first word", vec![Say(HEAD.into()), Wait(5000)], "stalled", ""),
        ("stall before the head", vec![Wait(5000)], "stalled", ""),
        ("closed before the head", vec![Close], "network", ""),
        ("nothing", vec![Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into())], "garbled", ""),
        (
            "a web page",
            vec![Say(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 22\r\n\r\n<html>\u{1b}Log in</html>.."
                    .into(),
            )],
            "web page",
            "",
        ),
        ("plain words", vec![Say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".into())], "garbled", ""),
        ("not text", vec![Say(stream(&["data: \u{1}\n\n"])), Close], "garbled", ""),
        (
            "an error with status 200",
            vec![Say("HTTP/1.1 200 OK\r\ncontent-length: 38\r\n\r\n{\"error\":{\"code\":429,\"message\":\"slow\"}}"
                .replace("38", "39"))],
            "rate",
            "",
        ),
        ("an error status", vec![Say("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno".into())], "auth", ""),
        (
            "a redirect elsewhere",
            vec![Say("HTTP/1.1 307 T\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n".into())],
            "bad",
            "",
        ),
        ("a wait", vec![Say("HTTP/1.1 429 T\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n".into())], "rate", ""),
    ];
    for (name, acts, expected_kind, expected_text) in cases {
        let answer = one(acts.clone(), timeouts(300)).await;
        let error = answer.last().unwrap().as_ref().expect_err(name);
        let kind = match error {
            Error::Unreachable(_) | Error::Network(_) | Error::LocalNetwork(_) => "network",
            Error::InvalidAnswer(_) => "garbled",
            Error::WebPage(_) => "web page",
            Error::AnswerTooLarge(_) => "too much",
            Error::Timeout(_) => "stalled",
            Error::RateLimited { .. } => "rate",
            Error::Auth(_) => "auth",
            Error::NoKey(_) => "keyless",
            Error::WaitsForTrust(_) => "withheld",
            Error::BadRequest(_) => "bad",
            _ => "other",
        };
        assert_eq!(
            (kind, text(&answer).as_str()),
            (*expected_kind, *expected_text),
            "{name}: {error}"
        );
        assert!(!error.to_string().contains('\u{1b}'), "{name}: {error}");
    }
}

#[tokio::test]
async fn complete_answer_is_no_error_for_any_end_of_the_connection() {
    let stop = END.split("\n\n").next().unwrap().to_owned() + "\n\n";
    for acts in [
        vec![
            Say(format!("{HEAD}{}{}", chunk(&text_event("x")), chunk(&stop))),
            Wait(20),
            Reset,
        ],
        vec![
            Say(format!("{HEAD}{}{}", chunk(&text_event("x")), chunk(&stop))),
            Wait(5000),
        ],
        vec![
            Say(format!("{HEAD}{}{}", chunk(&text_event("x")), chunk(END))),
            Wait(5000),
        ],
        vec![
            Say(format!(
                "HTTP/1.1 200 OK\r\n\r\n{}{}",
                text_event("x"),
                END.trim_end()
            )),
            Close,
        ],
        vec![
            Say(format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\r\n{}{END}",
                text_event("x")
            )
            .replace("\n\n", "\r\n\r\n")),
            Close,
        ],
    ] {
        let answer = one(acts, timeouts(300)).await;
        assert_eq!(
            (text(&answer).as_str(), answer.last()),
            ("x", Some(&Ok(Delta::Finish(Finish::Stop))))
        );
    }
}

#[tokio::test]
async fn refused_connection_means_the_server_is_not_running() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let answer = answers(&client(), address, RequestTimeouts::default()).await;
    let expected = Error::ConnectionRefused(format!("Acme is not running at {address}."));
    assert_eq!(answer, [Err(expected)]);
    // Of other servers the reason is reported.
    let error = client()
        .get("Acme", &format!("http://{address}/"), &[], 10)
        .await
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("Acme (127.0.0.1) could not be reached") && message.contains("refused"),
        "{message}"
    );
}

#[tokio::test]
async fn unreadable_certificates_are_named() {
    let vars = [("NODE_EXTRA_CA_CERTS".to_owned(), "/no/such/file".to_owned())];
    let client = HttpClient::new(&Environment::from_vars(vars.into()));
    let error = client
        .get("Acme", "https://192.0.2.1/", &[], 10)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("NODE_EXTRA_CA_CERTS names /no/such/file: No such file"),
        "{error}"
    );
}

#[tokio::test]
async fn dropped_answer_closes_the_connection() {
    let (address, server) = serve(vec![vec![Say(format!(
        "{HEAD}{}",
        chunk(&text_event("x"))
    ))]])
    .await;
    let call = HttpCall {
        url: format!("http://{address}/"),
        headers: Vec::new(),
        body: "{}".into(),
    };
    let mut answer = client().stream(
        "Acme".into(),
        call,
        Chat.decoder(&RequestTarget::default()),
        RequestTimeouts::default(),
        None,
    );
    assert!(answer.next().await.unwrap().is_ok());
    drop(answer);
    // The server's last read ends when the connection does.
    assert_eq!(
        timeout(Duration::from_secs(5), server)
            .await
            .unwrap()
            .unwrap()
            .len(),
        1
    );
}

/// A decoder that panics.
struct Broken;

impl Decoder for Broken {
    fn decode(&mut self, _: &str, _: &str, _: &mut Vec<Delta>) -> Result<crate::sse::Flow, Error> {
        panic!("on purpose")
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test]
#[should_panic(expected = "on purpose")]
async fn panic_of_a_decoder_reaches_the_caller() {
    let bytes = futures_util::stream::iter([Ok(Bytes::from(text_event("x") + END))]).boxed();
    let answer = decode_recorded(
        "Acme".into(),
        bytes,
        Box::new(Broken),
        RequestTimeouts::default(),
    );
    answer.collect::<Vec<_>>().await;
}

/// Tests that comments, pings, empty deltas and counts of tokens keep a connection alive, but not
/// for ever.
#[tokio::test(start_paused = true)]
async fn answer_without_content_stalls() {
    let chat: &dyn WireFormat = &Chat;
    let table: [(&dyn WireFormat, &str); 5] = [
        (chat, ": wait\n\n"),
        (chat, "data: {\"choices\":[]}\n\n"),
        (
            chat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n",
        ),
        (
            chat,
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n",
        ),
        (&Messages, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ];
    for (wire, nothing) in table {
        let nothings = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Some((Ok(Bytes::from_static(nothing.as_bytes())), ()))
        });
        let started = Instant::now();
        let decoder = wire.decoder(&RequestTarget::default());
        let mut reading = ResponseStream::new(
            "Acme".into(),
            Box::pin(nothings),
            decoder,
            RequestTimeouts::default(),
            None,
        );
        let end = async {
            loop {
                match reading.next().await {
                    Some(Ok(_)) => {}
                    end => break end,
                }
            }
        };
        let end = timeout(Duration::from_secs(2_000), end).await;
        assert_eq!(
            end,
            Ok(Some(Err(Error::Timeout(Duration::from_secs(900))))),
            "{nothing}"
        );
        assert_eq!(started.elapsed().as_secs(), 900, "{nothing}");
    }

    let silence = futures_util::stream::pending();
    let total = RequestTimeouts {
        total: Some(Duration::from_secs(7)),
        ..RequestTimeouts::default()
    };
    let deadline = Some(Instant::now() + Duration::from_secs(7));
    let mut reading = ResponseStream::new(
        "Acme".into(),
        silence,
        Chat.decoder(&RequestTarget::default()),
        total,
        deadline,
    );
    assert_eq!(
        reading.next().await,
        Some(Err(Error::Timeout(Duration::from_secs(7))))
    );
}

#[tokio::test]
async fn deltas_of_one_packet_are_merged() {
    let packet: String = (0..1000).map(|_| text_event("ab")).collect::<String>() + END;
    let bytes = futures_util::stream::iter([Ok(Bytes::from(packet))]);
    let mut reading = ResponseStream::new(
        "Acme".into(),
        bytes,
        Chat.decoder(&RequestTarget::default()),
        RequestTimeouts::default(),
        None,
    );
    assert_eq!(
        reading.next().await,
        Some(Ok(Delta::Text {
            index: 0,
            text: "ab".repeat(1000)
        }))
    );
    assert_eq!(reading.next().await, Some(Ok(Delta::Finish(Finish::Stop))));
    assert_eq!(reading.next().await, None);
}

/// Tests that an endless answer is cut off at the limit, and one with endless calls as well.
#[tokio::test]
async fn endless_answer_is_cut_off() {
    let word = text_event(&"again and again ".repeat(4 << 10));
    let call = |n: usize| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":{n},\"id\":\"c{n}\",\"function\":{{\"name\":\"list\",\"arguments\":\"{{}}\"}}}}]}}}}]}}\n\n"
        )
    };
    let words: Box<dyn Iterator<Item = String> + Send> = Box::new(std::iter::repeat(word));
    let calls: Box<dyn Iterator<Item = String> + Send> = Box::new((0..).map(call));
    for (pieces, what) in [
        (words, "larger than 8 MiB"),
        (calls, "more than 2048 calls"),
    ] {
        let bytes = futures_util::stream::iter(pieces.map(|piece| Ok(Bytes::from(piece))));
        let mut reading = ResponseStream::new(
            "Acme".into(),
            bytes,
            Chat.decoder(&RequestTarget::default()),
            RequestTimeouts::default(),
            None,
        );
        let mut size = 0;
        let mut deltas = 0;
        let error = loop {
            match reading.next().await.unwrap() {
                Ok(delta) => size += text(&[Ok(delta)]).len(),
                Err(error) => break error,
            }
            deltas += 1;
            assert!(
                size <= 2 * MAX_ANSWER_BYTES && deltas < 100_000,
                "it goes on after {deltas} pieces, {size} bytes"
            );
        };
        assert!(
            matches!(&error, Error::AnswerTooLarge(message) if message.contains(what)),
            "{error}"
        );
        assert!(size <= MAX_ANSWER_BYTES && !error.is_transient(), "{size}");
        assert_eq!(reading.next().await, None);
    }
}

/// Reads a long stream. Not a timed test: prints the throughput, to be read with `--nocapture` in a
/// release build.
#[tokio::test]
async fn long_stream_is_read() {
    let flood: Vec<Bytes> = (0..20_000)
        .map(|i| Bytes::from(format!("data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"bench-model\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{i:05} some words here\"}},\"finish_reason\":null}}]}}\n\n")))
        .collect();
    let size: usize = flood.iter().map(Bytes::len).sum();
    let started = std::time::Instant::now();
    let items = flood
        .into_iter()
        .map(Ok)
        .chain([Ok(Bytes::from_static(END.as_bytes()))]);
    let mut reading = ResponseStream::new(
        "Acme".into(),
        futures_util::stream::iter(items),
        Chat.decoder(&RequestTarget::default()),
        RequestTimeouts::default(),
        None,
    );
    let mut deltas = 0;
    let mut letters = 0;
    while let Some(delta) = reading.next().await {
        deltas += 1;
        letters += text(&[delta]).len();
    }
    let took = started.elapsed();
    println!(
        "{deltas} deltas, {size} bytes in {took:?}: {:.0} MB/s",
        size as f64 / took.as_secs_f64() / 1e6
    );
    assert_eq!(letters, 20_000 * "00000 some words here".len());
}

/// Tests a compressed answer: some gateways compress, whatever the request accepts.
#[tokio::test]
async fn compressed_answer_is_read() {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(format!("{}{END}", text_event("Grüße, packed 🦀")).as_bytes())
        .unwrap();
    let packed = packed.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        packed.len()
    );
    let (half, rest) = packed.split_at(packed.len() / 2);
    let acts = vec![
        Say(head.clone()),
        Act::Bytes(half.to_vec()),
        Wait(20),
        Act::Bytes(rest.to_vec()),
    ];
    assert_eq!(
        text(&one(acts, RequestTimeouts::default()).await),
        "Grüße, packed 🦀"
    );
    // An answer that is only declared as compressed is an error.
    let acts = vec![Say(head), Act::Bytes(vec![b'x'; packed.len()])];
    let answer = one(acts, RequestTimeouts::default()).await;
    assert!(
        matches!(answer.last(), Some(Err(e)) if e.is_transient()),
        "{answer:?}"
    );
}

#[tokio::test]
async fn unknown_host_is_named_in_the_error() {
    struct FailingResolver;
    impl reqwest::dns::Resolve for FailingResolver {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(async {
                Err("failed to lookup address information: Name or service not known".into())
            })
        }
    }
    let client = build(
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .dns_resolver(Arc::new(FailingResolver)),
    )
    .unwrap();
    let failed = client
        .get("http://models.example/v1?key=secret")
        .send()
        .await
        .unwrap_err();
    let error = connection_error("Acme", &failed);
    let text = error.to_string();
    assert!(
        text.starts_with("The host of Acme (models.example) was not found: "),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(error.fault().advice.unwrap().contains("HTTPS_PROXY"));
}

#[tokio::test]
async fn cause_is_not_guessed_from_the_name_of_a_host() {
    let lookup = |_| -> Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>> {
        Box::pin(async { Ok(vec![SocketAddr::from(([10, 0, 0, 1], 0))]) })
    };
    let resolver = FilteredResolver {
        lookup: Arc::new(lookup),
        why_forbidden: |_| Some("is private"),
    };
    let client = build(
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .dns_resolver(resolver),
    )
    .unwrap();
    let failed = client
        .get("http://certificate.proxy.dns.example/v1")
        .send()
        .await
        .unwrap_err();
    let error = connection_error("Acme", &failed);
    assert!(
        error
            .to_string()
            .starts_with("Acme (certificate.proxy.dns.example) could not be reached: "),
        "{error}"
    );
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
}
