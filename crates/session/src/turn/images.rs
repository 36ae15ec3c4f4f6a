//! Attachments that a model or provider does not accept: PDFs of results are replaced by their
//! text, and rejected images are stored but left out of every later request, so that they never
//! block a session.

use super::{History, TurnContext, view};
use base::text;
use events::{Event, Severity};
use pictures::{self, Prepared, is_picture};
use tools::files::pdf;
use tools::{ToolContext, ToolOutput, truncate};
use transcript::{CallState, Content, File, ImageSettings, Message, Part};

/// Scales the images of a result to fit. An image that cannot be sent is replaced by the reason,
/// and the SVG images by their sources, which are cut like a result. Returns the reasons.
pub(super) async fn fit_images(
    output: &mut ToolOutput,
    limits: ImageSettings,
    context: &ToolContext,
) -> Vec<String> {
    let mut fitting = Vec::with_capacity(output.attachments.len());
    let mut left_out = Vec::new();
    let mut sources = Vec::new();
    for file in std::mem::take(&mut output.attachments) {
        match pictures::fitting(file, limits).await {
            Ok(Prepared::File(file)) => fitting.push(file),
            Ok(Prepared::Text(source)) => sources.push(source),
            Err(why) => {
                output.text = format!("{}\n{why}", output.text);
                left_out.push(why);
            }
        }
    }
    output.attachments = fitting;
    if !sources.is_empty() {
        let sources = truncate::finish_failure(sources.join("\n"), context);
        output.text = format!("{}\n{sources}", output.text);
    }
    left_out
}

/// Replaces PDFs by their text, if it can be extracted.
pub(super) async fn replace_pdfs(output: &mut ToolOutput, context: &ToolContext) {
    for file in std::mem::take(&mut output.attachments) {
        match pdf::text_or_reason(&file, context).await {
            Some(text) => output.text = format!("{}\n{text}", output.text),
            None => output.attachments.push(file),
        }
    }
}

/// True if the request contains an image that was not rejected yet.
pub(super) fn has_sendable_image(history: &History) -> bool {
    !messages_to_strip(history).is_empty()
}

/// Leaves out the images that were sent for the first time with the rejected request; if there
/// were none, all of them, because the model may have been switched. Notifies the user, and returns
/// a text for the model.
pub(super) async fn reject_images(
    history: &mut History,
    turn: &TurnContext,
    model: &str,
    why: &str,
) -> String {
    let mut names = Vec::new();
    for at in messages_to_strip(history) {
        let message = &mut history.messages[at];
        for part in &mut message.parts {
            let before = names.len();
            for file in attachments_mut(part).filter(|file| is_sent(file)) {
                file.is_rejected = true;
                names.push(name(file));
            }
            if names.len() > before {
                turn.session.recorder.part(&message.id, part).await;
            }
        }
    }
    let (images, verb, pronoun) = if names.len() == 1 {
        ("image", "is", "it")
    } else {
        ("images", "are", "them")
    };
    // Several images without a name.
    names.dedup();
    let title = format!(
        "The {images} {} {verb} no longer sent: {model} does not accept {pronoun}.",
        names.join(", ")
    );
    let details = Some(text::title(why));
    turn.event_sender
        .event(Event::Notice {
            severity: Severity::Warning,
            title: title.clone(),
            details,
        })
        .await;
    format!(
        "{title} The provider's message: {}. Tell the user, and continue without {pronoun}.",
        text::title(why.trim_end_matches('.'))
    )
}

/// Returns the indexes of the messages with the images to leave out.
fn messages_to_strip(history: &History) -> Vec<usize> {
    let visible = view::visible_indexes(history);
    let shows = |message: &Message| {
        message
            .parts
            .iter()
            .any(|part| attachments(part).iter().any(is_sent))
    };
    let all: Vec<usize> = history
        .messages
        .iter()
        .enumerate()
        .filter(|(at, message)| visible.has(*at) && shows(message))
        .map(|(at, _)| at)
        .collect();
    // The results of the last answer's calls follow it.
    let answered = |message: &Message| {
        message
            .assistant()
            .is_some_and(|answer| answer.fault.is_none())
    };
    let since = history.messages.iter().rposition(answered).unwrap_or(0);
    let fresh: Vec<usize> = all.iter().copied().filter(|at| *at >= since).collect();
    if fresh.is_empty() { all } else { fresh }
}

fn is_sent(file: &File) -> bool {
    is_picture(file) && file.data.is_some() && !file.is_rejected
}

fn attachments(part: &Part) -> &[File] {
    match &part.content {
        Content::File(file) => std::slice::from_ref(file),
        Content::Tool(call) => match &call.state {
            CallState::Completed(done) if done.cleared.is_none() => &done.attachments,
            _ => &[],
        },
        _ => &[],
    }
}

fn attachments_mut(part: &mut Part) -> impl Iterator<Item = &mut File> {
    let files: &mut [File] = match &mut part.content {
        Content::File(file) => std::slice::from_mut(file),
        Content::Tool(call) => match &mut call.state {
            CallState::Completed(done) if done.cleared.is_none() => &mut done.attachments,
            _ => &mut [],
        },
        _ => &mut [],
    };
    files.iter_mut()
}

fn name(file: &File) -> String {
    text::title(
        file.name
            .as_deref()
            .or(file.uri.as_deref())
            .unwrap_or("of the prompt"),
    )
}
