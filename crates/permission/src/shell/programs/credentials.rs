//! Commands that print a credential, as listed in `programs/credentials.txt`, which documents its
//! syntax. They are recognised by their words, whatever options are in between, because the
//! programs have more options than a table can list.

use std::sync::LazyLock;

use crate::shell::expand::Arg;

/// One command of the list.
#[derive(Debug)]
struct Printer {
    program: &'static str,
    /// Words in their order, each with its alternatives.
    words: Vec<Vec<&'static str>>,
    with: Vec<&'static str>,
    but: Vec<&'static str>,
}

static PRINTERS: LazyLock<Vec<Printer>> = LazyLock::new(|| {
    let lines = include_str!("credentials.txt").lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Printer::of)
        .collect()
});

impl Printer {
    fn of(line: &'static str) -> Self {
        let (line, but) = line.split_once(" but ").unwrap_or((line, ""));
        let (line, with) = line.split_once(" with ").unwrap_or((line, ""));
        let mut words = line.split_ascii_whitespace();
        Self {
            program: words.next().unwrap_or_default(),
            words: words.map(|word| word.split('|').collect()).collect(),
            with: with.split_ascii_whitespace().collect(),
            but: but.split_ascii_whitespace().collect(),
        }
    }

    fn prints(&self, name: &str, args: &[Arg]) -> bool {
        fits(self.program, name)
            && self
                .words_in(args)
                .is_some_and(|end| self.has_options(args) && !self.is_harmless(args, end))
    }

    /// Returns the number of words up to the last one of the command. Its words may have others in
    /// between; a computed word may be any.
    fn words_in(&self, args: &[Arg]) -> Option<usize> {
        let mut end = 0;
        for wanted in &self.words {
            let is_fitting = |arg: &Arg| {
                arg.text()
                    .is_none_or(|text| wanted.iter().any(|pattern| fits(pattern, text)))
            };
            end += 1 + args[end..]
                .iter()
                .position(|arg| !arg.prefix().starts_with('-') && is_fitting(arg))?;
        }
        Some(end)
    }

    fn has_options(&self, args: &[Arg]) -> bool {
        let is_given = |option: &&str| args.iter().any(|arg| arg.prefix().starts_with(*option));
        self.with.is_empty() || self.with.iter().any(is_given)
    }

    /// Returns whether the requested item, given by the values of options or otherwise by the word
    /// at `end`, is not a credential.
    fn is_harmless(&self, args: &[Arg], end: usize) -> bool {
        let is_but =
            |arg: Option<&Arg>| arg.is_some_and(|arg| self.but.iter().any(|word| arg.is(word)));
        if self.with.is_empty() {
            let at = if self.words.last().is_some_and(|words| words == &["*"]) {
                end - 1
            } else {
                end
            };
            return is_but(args.get(at));
        }
        let is_given = |arg: &Arg| {
            self.with
                .iter()
                .any(|option| arg.prefix().starts_with(option))
        };
        let mut given = args.iter().enumerate().filter(|(_, arg)| is_given(arg));
        given.all(|(at, arg)| {
            is_but(Some(arg))
                || self.with.iter().any(|option| arg.is(option)) && is_but(args.get(at + 1))
        })
    }
}

/// Returns whether a name matches a pattern with a `*` at its beginning, its end or both.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (None, None) => name == pattern,
    }
}

/// Returns the command that prints a credential, as far as its words name it.
pub(super) fn printed(name: &str, args: &[Arg]) -> Option<String> {
    let printer = PRINTERS.iter().find(|printer| printer.prints(name, args))?;
    let text = printer
        .words
        .iter()
        .map(|text| text.join("|"))
        .filter(|word| !word.contains('*'));
    Some(
        std::iter::once(name.to_owned())
            .chain(text)
            .collect::<Vec<_>>()
            .join(" "),
    )
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::Action;
    use crate::case_tables::{PathFixture, bash_rules, judge};

    #[test]
    fn printing_a_credential_asks_like_reading_one() {
        let lab = PathFixture::new();
        let rules = bash_rules(&lab.context, &[("*", Action::Allow)]);
        let asked = [
            "gh auth token",
            "gh auth --hostname x token",
            "env gh auth token | cat",
            "x=$(gh auth token)",
            "gh auth status --show-token",
            "pass show mail/x",
            "pass mail/x",
            "op read op://vault/item/password",
            "kubectl get secret db -o yaml",
            "kubectl -n prod get secrets -ojson",
            "kubectl get pods,secrets --output=yaml",
            "kubectl get secret/db -o jsonpath='{.data}'",
            "aws configure get aws_secret_access_key",
            "aws --profile x configure get aws_session_token",
            "aws secretsmanager get-secret-value --secret-id x",
            "gcloud auth print-access-token",
            "vault kv get secret/x",
            "npm config get //registry.npmjs.org/:_authToken",
            "docker-credential-desktop get",
            "sops -d secrets.enc.yaml",
            "gh $x token",
            "kubectl get secret db name -o yaml",
            "kubectl get secret db -o name -o yaml",
            "aws --profile region configure get aws_secret_access_key",
            "aws configure get --profile region aws_secret_access_key",
            "pass mail/x ls",
        ];
        for line in asked {
            assert_eq!(
                judge(&rules, line, &lab.context).action,
                Action::Ask,
                "{line}"
            );
        }
        let allowed = [
            "gh auth status",
            "gh pr list",
            "gh pr create --title 'auth token'",
            "kubectl get pods -o yaml",
            "kubectl get secrets",
            "kubectl get secret -o name",
            "kubectl get secret db --output=wide",
            "pass ls mail",
            "aws --profile x configure get region",
            "aws configure get region --profile x",
            "aws configure get region",
            "aws configure list",
            "aws s3 ls",
            "npm config get registry",
            "gcloud auth list",
            "vault status",
            "passwd",
            "gpg --list-keys",
        ];
        for line in allowed {
            assert_eq!(
                judge(&rules, line, &lab.context).action,
                Action::Allow,
                "{line}"
            );
        }
    }
}
