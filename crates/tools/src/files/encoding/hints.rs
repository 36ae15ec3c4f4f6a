//! The encodings that the user names for files: `charset` in `.editorconfig`, and the setting
//! `file_encoding`.

use std::path::{Path, PathBuf};

use ec4rs::ConfigParser;
use encoding_rs::{Encoding, UTF_8};

use crate::files::disk;
use base::worktree::Worktree;

/// The number of bytes of an `.editorconfig` that are read; the rest is ignored.
const MAX_CONFIG_BYTES: usize = 64 << 10;

/// The maximum number of `{…}` groups in a pattern of `.editorconfig`. The time of a comparison is
/// exponential in it.
const MAX_GROUPS: usize = 4;
/// The maximum length of a pattern of `.editorconfig`, in bytes.
const MAX_PATTERN_BYTES: usize = 500;

/// The encodings that are named for one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodingHint {
    /// The `charset` of `.editorconfig`.
    pub charset: Option<&'static Encoding>,
    /// The setting `file_encoding`.
    pub setting: Option<&'static Encoding>,
}

impl EncodingHint {
    /// Returns the named encodings, the first choice first. UTF-8 in `.editorconfig` is meant for
    /// the files of a project in general, so the setting precedes it.
    pub(super) fn all(self) -> impl Iterator<Item = &'static Encoding> {
        let is_general = self.charset == Some(UTF_8);
        let own = if is_general { None } else { self.charset };
        let general = if is_general { self.charset } else { None };
        own.into_iter().chain(self.setting).chain(general)
    }

    /// Returns the first choice.
    pub fn named(self) -> Option<&'static Encoding> {
        self.all().next()
    }
}

/// Finds the encodings that the user names for the files of a project.
#[derive(Debug, Clone)]
pub struct EncodingHints {
    /// The directories of the project.
    roots: Vec<PathBuf>,
    setting: Option<&'static Encoding>,
}

impl EncodingHints {
    pub fn new(worktree: &Worktree, setting: Option<&'static Encoding>) -> Self {
        let roots = std::iter::once(&worktree.root).chain(&worktree.extra);
        Self {
            roots: roots.cloned().collect(),
            setting,
        }
    }

    /// Returns the hint for a file, given by an absolute path without links. Reads the
    /// `.editorconfig` files of its directories up to that of the project.
    pub fn of(&self, real: &Path) -> EncodingHint {
        EncodingHint {
            charset: self.charset(real),
            setting: self.setting,
        }
    }

    /// Returns the `charset` of the nearest `.editorconfig` that has one for the file.
    fn charset(&self, real: &Path) -> Option<&'static Encoding> {
        for folder in real.ancestors().skip(1) {
            if !self.roots.iter().any(|root| folder.starts_with(root)) {
                return None;
            }
            let Ok(bytes) = disk::read(&folder.join(".editorconfig")) else {
                continue;
            };
            let bytes = &bytes[..bytes.len().min(MAX_CONFIG_BYTES)];
            if !bytes.split(|byte| *byte == b'\n').all(is_simple) {
                continue;
            }
            let Ok(mut parser) = ConfigParser::new(bytes) else {
                continue;
            };
            let is_root = parser.is_root;
            let relative = real.strip_prefix(folder).unwrap_or(real);
            let charset = parser
                .by_ref()
                .map_while(Result::ok)
                .filter(|section| section.applies_to(relative))
                .filter_map(|section| {
                    let value = section.props().get_raw_for_key("charset").into_option()?;
                    Some(value.to_ascii_lowercase())
                })
                .last();
            if let Some(charset) = charset {
                return encoding_of(&charset);
            }
            if is_root {
                return None;
            }
        }
        None
    }
}

/// Returns whether a line of `.editorconfig` has no pattern that takes too long to compare.
fn is_simple(line: &[u8]) -> bool {
    let groups = line.iter().filter(|byte| **byte == b'{').count();
    !line.contains(&b'[') || groups <= MAX_GROUPS && line.len() <= MAX_PATTERN_BYTES
}

/// Returns the encoding of a value of `charset`; `None` if it is unknown.
fn encoding_of(charset: &str) -> Option<&'static Encoding> {
    let label = charset.strip_suffix("-bom").unwrap_or(charset);
    Encoding::for_label_no_replacement(label.as_bytes())
}
