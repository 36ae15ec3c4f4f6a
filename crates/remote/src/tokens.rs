//! Access tokens, of which only the SHA-256 is stored. The token file is read again when it has
//! changed, so that a token can be replaced without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use base::lock::lock;
use config::settings::TokenEntry;

/// A known token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    hash: [u8; 32],
    pub user: Option<String>,
    /// The directories that the token may open, as canonical paths; `None`: those of the server.
    pub roots: Option<Arc<[PathBuf]>>,
}

/// The known tokens.
#[derive(Debug, Default)]
pub struct Tokens {
    listed: Vec<Token>,
    file: Option<TokenFile>,
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// The tokens of the settings, whose names and digests must not occur in the file.
    listed: Arc<[Token]>,
    // A std mutex around the last contents of the file: a leaf lock.
    read: Mutex<(Stamp, Arc<[Token]>)>,
}

/// The maximum length of a token's name in bytes.
const MAX_NAME_BYTES: usize = 100;

/// The modification time and the size of a file, to detect changes.
type Stamp = Option<(SystemTime, u64)>;

impl Tokens {
    /// Reads the tokens of the settings and of a file.
    ///
    /// # Errors
    /// An entry is invalid; the message is for the operator.
    pub fn new(listed: &[TokenEntry], file: Option<&Path>) -> Result<Self, String> {
        let listed = listed.iter().enumerate().map(|(at, entry)| {
            let name = if entry.name.is_empty() {
                format!("{}", at + 1)
            } else {
                entry.name.clone()
            };
            token(
                &name,
                &entry.sha256,
                entry.user.clone(),
                entry.roots.clone(),
            )
            .map_err(|why| format!("the token \"{name}\" in serve.tokens {why}"))
        });
        let mut known = Vec::new();
        for token in listed {
            add(&mut known, token?).map_err(|why| format!("serve.tokens: {why}"))?;
        }
        let file = file.map(|path| {
            let stamp = stamp(path);
            let (tokens, problems) = read(path, &known)?;
            if let Some(problem) = problems.into_iter().next() {
                return Err(problem);
            }
            Ok::<_, String>(TokenFile {
                path: path.to_owned(),
                listed: known.clone().into(),
                read: Mutex::new((stamp, tokens.into())),
            })
        });
        Ok(Self {
            file: file.transpose()?,
            listed: known,
        })
    }

    /// Returns whether a token with this name is known.
    pub fn has(&self, name: &str) -> bool {
        let in_file = self.file.as_ref().map(TokenFile::current);
        self.listed
            .iter()
            .chain(in_file.iter().flat_map(|tokens| tokens.iter()))
            .any(|token| token.name == name)
    }

    /// Returns whether clients need a token.
    pub fn are_wanted(&self) -> bool {
        !self.listed.is_empty() || self.file.is_some()
    }

    /// Returns the token that a client has sent, if it is known.
    pub fn find(&self, presented: &str) -> Option<Token> {
        self.find_hash(&hash(presented.as_bytes()))
    }

    /// Returns the token with this SHA-256, which may be that of a certificate.
    pub fn find_hash(&self, hash: &[u8; 32]) -> Option<Token> {
        let in_file = self.file.as_ref().map(TokenFile::current);
        // Compares with all tokens, each in constant time.
        let all = self
            .listed
            .iter()
            .chain(in_file.iter().flat_map(|tokens| tokens.iter()));
        all.fold(None, |found, token| {
            if same(&token.hash, hash) {
                Some(token.clone())
            } else {
                found
            }
        })
    }
}

impl TokenFile {
    /// Returns the current tokens of the file. If the file cannot be read, the earlier tokens stay
    /// in effect.
    fn current(&self) -> Arc<[Token]> {
        let stamp = stamp(&self.path);
        let mut last = lock(&self.read);
        if last.0 != stamp {
            match read(&self.path, &self.listed) {
                // A removed token must not stay valid because another line is invalid.
                Ok((tokens, problems)) => {
                    for problem in problems {
                        tracing::error!("{problem}; this line is left out");
                    }
                    *last = (stamp, tokens.into());
                }
                Err(e) => tracing::error!("{e}; the earlier tokens stay valid"),
            }
        }
        last.1.clone()
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// Adds a token. Names must be unique, because the log contains them, and so must digests, because
/// they identify the user.
fn add(tokens: &mut Vec<Token>, token: Token) -> Result<(), String> {
    if tokens.iter().any(|other| other.name == token.name) {
        return Err(format!(
            "there are two tokens named \"{}\"; give one of them another name",
            token.name
        ));
    }
    if let Some(other) = tokens.iter().find(|other| other.hash == token.hash) {
        let one = &other.name;
        let two = &token.name;
        return Err(format!(
            "the tokens \"{one}\" and \"{two}\" are the same one; remove either"
        ));
    }
    tokens.push(token);
    Ok(())
}

/// Reads the tokens of a file, without those `listed` in the settings. Returns the problems of
/// invalid lines too.
fn read(path: &Path, listed: &[Token]) -> Result<(Vec<Token>, Vec<String>), String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let mut tokens = listed.to_vec();
    let mut problems = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(why) = entry(line).and_then(|token| add(&mut tokens, token)) {
            problems.push(format!("{}:{}: {why}", path.display(), at + 1));
        }
    }
    Ok((tokens.split_off(listed.len()), problems))
}

/// Parses one line: `NAME sha256:DIGITS user=USER root=DIRECTORY …`.
fn entry(line: &str) -> Result<Token, String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(hash)) = (
        words.next(),
        words.next().and_then(|word| word.strip_prefix("sha256:")),
    ) else {
        return Err(
            "a line is NAME sha256:DIGITS, then user=USER and root=DIRECTORY as wanted".into(),
        );
    };
    let mut user = None;
    let mut roots = None::<Vec<PathBuf>>;
    for word in words {
        match word.split_once('=') {
            Some(("user", name)) => user = Some(name.to_owned()),
            Some(("root", path)) => roots.get_or_insert_default().push(path.into()),
            _ => {
                return Err(format!(
                    "\"{word}\" is neither user=USER nor root=DIRECTORY"
                ));
            }
        }
    }
    token(name, hash, user, roots)
}

fn token(
    name: &str,
    hash: &str,
    user: Option<String>,
    roots: Option<Vec<PathBuf>>,
) -> Result<Token, String> {
    check_name(name)?;
    if let Some(user) = user.as_deref().filter(|user| !is_user(user)) {
        return Err(format!("has an invalid user name: \"{user}\""));
    }
    let hash = digits(hash).ok_or("has no sha256 of 64 hexadecimal digits")?;
    let roots = roots.map(|roots| real(&roots)).transpose()?;
    Ok(Token {
        name: name.to_owned(),
        hash,
        user,
        roots,
    })
}

/// Returns the canonical paths of directories.
///
/// # Errors
/// A directory does not exist.
pub fn real(roots: &[PathBuf]) -> Result<Arc<[PathBuf]>, String> {
    let one = |root: &PathBuf| {
        let real = std::fs::canonicalize(root)
            .ok()
            .filter(|real| real.is_dir());
        real.ok_or_else(|| format!("has a root that is not a directory: {}", root.display()))
    };
    roots.iter().map(one).collect()
}

/// Checks a token's name, which must fit into one line of a log or an error.
fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "has a name of {} bytes, and {MAX_NAME_BYTES} are allowed",
            name.len()
        ));
    }
    let shown = base::text::shown(name);
    if shown != name || name.contains(['\n', '\t', '\r']) {
        return Err(format!(
            "has invisible characters in its name: {}",
            base::text::title(name)
        ));
    }
    Ok(())
}

/// Returns whether a user may have this name, which becomes the name of a directory.
pub fn is_user(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.chars().all(letter)
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// Returns the SHA-256 of a token or a certificate.
pub fn fingerprint(bytes: &[u8]) -> [u8; 32] {
    hash(bytes)
}

/// Compares two digests in constant time.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |differs, (a, b)| differs | std::hint::black_box(a ^ b))
        == 0
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(out)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a token, and its line for the token file.
///
/// # Errors
/// The system provides no random numbers, or the name does not fit into a line.
pub fn make(name: &str, user: Option<&str>) -> Result<(String, String), String> {
    if name.is_empty() || name.contains(char::is_whitespace) || name.starts_with('#') {
        return Err("a token's name is one word".into());
    }
    check_name(name).map_err(|why| format!("the new token {why}"))?;
    if let Some(user) = user.filter(|user| !is_user(user)) {
        return Err(format!("a user may not be called \"{user}\""));
    }
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "the system provides no random numbers")?;
    let token = format!("adj_{}", hexadecimal(&bytes));
    let user = user.map(|user| format!(" user={user}")).unwrap_or_default();
    let line = format!(
        "{name} sha256:{}{user}",
        hexadecimal(&hash(token.as_bytes()))
    );
    Ok((token, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_found_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let (token, line) = make("laptop", Some("ada")).unwrap();
        std::fs::write(
            &file,
            format!("# those of today\n\n{line} root={}\n", dir.path().display()),
        )
        .unwrap();
        let tokens = Tokens::new(&[], Some(&file)).unwrap();
        let found = tokens.find(&token).unwrap();
        assert_eq!(
            (found.name.as_str(), found.user.as_deref()),
            ("laptop", Some("ada"))
        );
        assert_eq!(found.roots.as_deref().map(<[PathBuf]>::len), Some(1));
        assert_eq!(tokens.find(&token[1..]), None);
        assert_eq!(tokens.find(""), None);
    }

    #[test]
    fn token_is_replaced_without_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let (old, line) = make("a", None).unwrap();
        std::fs::write(&file, line).unwrap();
        let tokens = Tokens::new(&[], Some(&file)).unwrap();
        assert!(tokens.find(&old).is_some());
        let (new, line) = make("a", None).unwrap();
        std::fs::write(&file, format!("{line}\n\n")).unwrap();
        assert!(tokens.find(&old).is_none());
        assert!(tokens.find(&new).is_some());
        // An invalid line does not remove other tokens, nor does it preserve removed ones.
        let (third, line) = make("b", None).unwrap();
        std::fs::write(&file, format!("a b c\n{line}\n\n\n")).unwrap();
        assert!(tokens.find(&third).is_some());
        assert!(tokens.find(&new).is_none());
    }

    #[test]
    fn invalid_line_is_reported_with_reason() {
        let good = format!("n sha256:{}", "0".repeat(64));
        assert!(entry(&good).is_ok());
        for (line, why) in [
            ("n".to_owned(), "a line is"),
            ("n sha256:12".to_owned(), "64 hexadecimal digits"),
            (
                format!("n sha256:{}", "é".repeat(32)),
                "64 hexadecimal digits",
            ),
            (format!("{good} users=a"), "neither"),
            (format!("{good} user=../a"), "has an invalid user name"),
            (format!("{good} root=/no/such"), "not a directory"),
            (
                good.replacen('n', &"n".repeat(101), 1),
                "has a name of 101 bytes, and 100 are allowed",
            ),
            (
                good.replacen('n', "a\u{1b}[2Jb", 1),
                "invisible characters in its name: a\\x1b[2Jb",
            ),
            (
                good.replacen('n', "a\u{202e}b", 1),
                "invisible characters in its name: a\\u{202e}b",
            ),
        ] {
            let found = entry(&line).unwrap_err();
            assert!(found.contains(why), "{line}: {found}");
        }
        assert!(
            make("a\u{7}", None)
                .unwrap_err()
                .contains("the new token has invisible characters")
        );
        assert!(
            make(&"n".repeat(101), None)
                .unwrap_err()
                .contains("100 are allowed")
        );
    }

    #[test]
    fn duplicate_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let (token, line) = make("a", None).unwrap();
        let other = line.replacen('a', "b", 1);
        let listed = |name: &str, line: &str| {
            let sha256 = line.split("sha256:").last().unwrap().to_owned();
            TokenEntry {
                name: name.into(),
                sha256,
                ..TokenEntry::default()
            }
        };
        let (_, fresh) = make("a", None).unwrap();
        for (listed, text, why) in [
            (
                vec![],
                format!("{line}\n{fresh}\n"),
                "tokens:2: there are two tokens named \"a\"",
            ),
            (
                vec![],
                format!("{line}\n{other}\n"),
                "tokens:2: the tokens \"a\" and \"b\" are the same one",
            ),
            (
                vec![listed("a", &fresh)],
                line.clone(),
                "tokens:1: there are two tokens named \"a\"",
            ),
            (
                vec![listed("x", &line)],
                line.clone(),
                "tokens:1: the tokens \"x\" and \"a\" are the same one",
            ),
            (
                vec![listed("x", &line), listed("x", &fresh)],
                String::new(),
                "serve.tokens: there are two",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = Tokens::new(&listed, Some(&file)).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        // A duplicate that is added later leaves the earlier tokens in effect.
        std::fs::write(&file, &line).unwrap();
        let tokens = Tokens::new(&[], Some(&file)).unwrap();
        assert!(tokens.has("a") && !tokens.has("b"));
        std::fs::write(&file, format!("{line}\n{fresh}\n")).unwrap();
        assert!(tokens.find(&token).is_some());
    }
}
