//! HTTP responses.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

pub fn of(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Returns plain text that ends with a newline, or an empty body.
pub fn plain(status: StatusCode, text: &str) -> Response<ResponseBody> {
    let end = if text.is_empty() { "" } else { "\n" };
    let mut response = of(status, Bytes::from(format!("{text}{end}")));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
