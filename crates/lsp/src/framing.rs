//! Frames messages as the language server protocol does: a header with the length, then JSON.

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The maximum size of a message that is read, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// The maximum length of a header line.
const MAX_HEADER_LINE_BYTES: usize = 4 << 10;
/// The maximum bytes to skip before a header: some programs print a greeting before they use the
/// protocol.
const MAX_PREAMBLE_BYTES: usize = 64 << 10;

/// Encodes a message.
pub(super) fn frame(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Reads the next message.
///
/// # Errors
/// Returns the reason, as the end of a sentence that begins with "it".
pub(super) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Value, String> {
    let mut length = None;
    let mut preamble = 0;
    let mut line = Vec::new();
    loop {
        next_line(from, &mut line).await?;
        let text = line.trim_ascii();
        if text.is_empty() {
            match length {
                Some(length) => return body(from, length).await,
                None => continue,
            }
        }
        let name = text.split(|byte| *byte == b':').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = std::str::from_utf8(&text[name.len() + 1..])
                .ok()
                .and_then(|text| text.trim().parse().ok());
            length = Some(number.ok_or("sends a message without a length")?);
        } else if !name.eq_ignore_ascii_case(b"content-type") {
            preamble += line.len();
            if preamble > MAX_PREAMBLE_BYTES {
                return Err("does not speak the language server protocol".into());
            }
        }
    }
}

async fn body(from: &mut (impl AsyncBufRead + Unpin), length: usize) -> Result<Value, String> {
    if length > MAX_MESSAGE_BYTES {
        return Err(format!("sends a message of {} MiB", length >> 20));
    }
    // Grows with the received bytes, not with the announced length.
    let mut body = Vec::new();
    let wanted = u64::try_from(length).unwrap_or(u64::MAX);
    let read = from
        .take(wanted)
        .read_to_end(&mut body)
        .await
        .map_err(|e| format!("cannot be read: {e}"))?;
    if read < length {
        return Err("ended".into());
    }
    serde_json::from_slice(&body).map_err(|_| "sends invalid JSON".into())
}

/// Reads a line with its end into `line`. A line beyond [`MAX_HEADER_LINE_BYTES`] is read in parts.
async fn next_line(
    from: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<(), String> {
    line.clear();
    loop {
        let available = from
            .fill_buf()
            .await
            .map_err(|e| format!("cannot be read: {e}"))?;
        if available.is_empty() {
            return Err("ended".into());
        }
        let end = available
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| at + 1);
        let take = end
            .unwrap_or(available.len())
            .min(MAX_HEADER_LINE_BYTES - line.len());
        line.extend_from_slice(&available[..take]);
        let is_complete = end == Some(take) || line.len() == MAX_HEADER_LINE_BYTES;
        from.consume(take);
        if is_complete {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn messages_are_read_across_buffer_boundaries() {
        let one = json!({"a": "ü"});
        let mut bytes = b"starting up\n\n".to_vec();
        bytes.extend(frame(&one));
        bytes.extend(b"content-type: x\r\nCONTENT-LENGTH:  2\r\n\r\n{}");
        // The result does not depend on the buffer size.
        for size in [1, 3, 1000] {
            let mut from = tokio::io::BufReader::with_capacity(size, &bytes[..]);
            assert_eq!(read(&mut from).await, Ok(one.clone()), "{size}");
            assert_eq!(read(&mut from).await, Ok(json!({})), "{size}");
            assert_eq!(read(&mut from).await, Err("ended".into()), "{size}");
        }
    }

    #[tokio::test]
    async fn invalid_input_is_rejected_within_bounds() {
        let table: &[(Vec<u8>, &str)] = &[
            (
                b"Content-Length: x\r\n\r\n{}".to_vec(),
                "sends a message without a length",
            ),
            (
                b"Content-Length: 99999999999\r\n\r\n".to_vec(),
                "sends a message of 95367 MiB",
            ),
            (b"Content-Length: 5\r\n\r\n{}".to_vec(), "ended"),
            (
                b"Content-Length: 3\r\n\r\nabc".to_vec(),
                "sends invalid JSON",
            ),
            (
                vec![b'x'; MAX_PREAMBLE_BYTES + MAX_HEADER_LINE_BYTES + 1],
                "does not speak the language server protocol",
            ),
            (b"\r\n".repeat(9), "ended"),
        ];
        for (bytes, why) in table {
            let got = read(&mut &bytes[..]).await;
            assert_eq!(
                got,
                Err((*why).to_owned()),
                "{:?}",
                &bytes[..bytes.len().min(30)]
            );
        }
    }
}
