//! Programs that talk to the network: which files they send or write, and which commands their
//! options carry.

use super::expand::Arg;
use super::options::Options;
use super::state::State;
use super::walk::{Input, Walk};
use super::{Effect, Unit};
use crate::permission::paths::Access;

impl Walk<'_> {
    pub(super) fn network(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        unit.effect_at_least(Effect::Unproven);
        let next = |names: &[&str]| {
            args.windows(2)
                .filter(|pair| names.iter().any(|name| pair[0].is(name)))
                .map(|pair| pair[1].clone())
                .collect::<Vec<_>>()
        };
        match name {
            "curl" => {
                let options = Options::read(
                    args,
                    "oXHdFubAeTKDcEmxrwCYyzQtPhU",
                    &[
                        "output",
                        "data",
                        "data-binary",
                        "data-raw",
                        "data-urlencode",
                        "form",
                        "upload-file",
                        "config",
                        "header",
                        "user",
                        "request",
                        "dump-header",
                        "cookie-jar",
                        "cookie",
                        "url",
                        "output-dir",
                        "cert",
                        "key",
                        "netrc-file",
                        "trace",
                        "trace-ascii",
                        "max-time",
                        "proxy",
                        "user-agent",
                        "referer",
                        "write-out",
                        "json",
                    ],
                );
                for flag in options.all(&[
                    "-o",
                    "--output",
                    "--output-dir",
                    "-D",
                    "--dump-header",
                    "-c",
                    "--cookie-jar",
                    "--trace",
                    "--trace-ascii",
                    "--stderr",
                    "--libcurl",
                    "--etag-save",
                    "--hsts",
                    "--alt-svc",
                ]) {
                    if let Some(value) = flag.value.clone() {
                        self.touch(Access::Edit, &value, unit, state);
                    }
                }
                if options.has(&["-O", "--remote-name", "--remote-name-all", "-J"]) {
                    unit.effect = Effect::Writes;
                }
                for flag in
                    options.all(&["-T", "--upload-file", "-K", "--config", "-E", "--cert", "--key", "--netrc-file"])
                {
                    if let Some(value) = flag.value.clone() {
                        self.touch(Access::Read, &value, unit, state);
                    }
                }
                if options.has(&["-K", "--config"]) {
                    unit.opaque("its options are in a file");
                }
                for flag in options.all(&[
                    "-d",
                    "--data",
                    "--data-binary",
                    "--data-urlencode",
                    "-F",
                    "--form",
                    "--json",
                    "-b",
                    "--cookie",
                    "-H",
                    "--header",
                    "-w",
                ]) {
                    if let Some(value) = &flag.value
                        && let Some(at) = value.prefix().find(['@', '<'])
                    {
                        let file = value.after(at + 1);
                        let file = file.text().and_then(|text| text.split(';').next()).map_or(file.clone(), Arg::exact);
                        self.touch(Access::Read, &file, unit, state);
                    }
                }
                for arg in &options.operands {
                    if arg
                        .text()
                        .is_some_and(|text| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:")))
                    {
                        self.touch(Access::Read, arg, unit, state);
                    }
                }
            }
            "wget" => {
                let options = Options::read(
                    args,
                    "OoaPUeitTQwA",
                    &[
                        "output-document",
                        "output-file",
                        "append-output",
                        "directory-prefix",
                        "post-file",
                        "input-file",
                        "execute",
                        "use-askpass",
                        "body-file",
                    ],
                );
                for flag in options.all(&[
                    "-O",
                    "--output-document",
                    "-o",
                    "--output-file",
                    "-a",
                    "--append-output",
                    "-P",
                    "--directory-prefix",
                ]) {
                    if let Some(value) = flag.value.clone() {
                        self.touch(Access::Edit, &value, unit, state);
                    }
                }
                let shown = options.find(&["-O", "--output-document"]).and_then(|flag| flag.value.as_ref());
                if !shown.is_some_and(|value| value.is("-") || value.is("/dev/null")) && !options.has(&["--spider"]) {
                    unit.effect = Effect::Writes;
                }
                for flag in options.all(&["--post-file", "--body-file", "-i", "--input-file"]) {
                    if let Some(value) = flag.value.clone() {
                        self.touch(Access::Read, &value, unit, state);
                    }
                }
                for flag in options.all(&["--use-askpass"]) {
                    if let Some(value) = flag.value.clone() {
                        self.text(&value, unit, true, true, state);
                    }
                }
            }
            "ssh" | "scp" | "sftp" | "rsync" => {
                let (options, at) = Options::leading(args, "BbcDEeFIiJLlmOopQRSWwPX", &["rsh", "rsync-path"]);
                let mut settings: Vec<Arg> = options.all(&["-o"]).filter_map(|flag| flag.value.clone()).collect();
                settings.extend(next(&["-o"]));
                for value in settings {
                    let text = value.prefix().to_owned();
                    let split = text.find(['=', ' ']).unwrap_or(text.len());
                    let key = text[..split].to_ascii_lowercase();
                    if [
                        "proxycommand",
                        "localcommand",
                        "knownhostscommand",
                        "permitlocalcommand",
                        "match",
                        "include",
                        "pkcs11provider",
                        "securitykeyprovider",
                        "xauthlocation",
                    ]
                    .contains(&key.as_str())
                    {
                        unit.danger("-o");
                        self.text(&value.after(split + 1), unit, true, true, state);
                    } else if key.is_empty() || !value.known() {
                        unit.opaque("its settings are computed");
                    }
                }
                let shells: &[&str] = if name == "rsync" { &["-e", "--rsh", "--rsync-path"] } else { &["-S", "-D"] };
                if name != "ssh" {
                    let letters = if name == "rsync" { "eBfT" } else { "SDoFiPJclBRs" };
                    let all = Options::read(args, letters, &["rsh", "rsync-path"]);
                    for flag in all.all(shells) {
                        if let Some(value) = flag.value.clone() {
                            unit.danger(&flag.name);
                            self.text(&value, unit, true, true, state);
                        }
                    }
                    for arg in &all.operands {
                        if arg.text().is_none_or(|text| !text.contains(':')) {
                            self.touch(Access::Edit, arg, unit, state);
                            self.touch(Access::Read, arg, unit, state);
                        }
                    }
                } else {
                    // What runs on the other machine is named for rules, not judged as if it ran here.
                    let remote = args.get(at + 1..).unwrap_or_default();
                    let text = remote.iter().map(Arg::normal).collect::<Vec<_>>().join(" ");
                    unit.texts.push(text);
                    if let Input::Text(Some(text)) = self.stdin() {
                        unit.texts.push(text);
                    }
                }
                if options.has(&["-F"]) {
                    unit.opaque("its settings are in a file, and may start programs");
                }
                for flag in options.all(&["-F", "-i", "-E"]) {
                    if let Some(value) = flag.value.clone() {
                        let access = if flag.name == "-E" { Access::Edit } else { Access::Read };
                        self.touch(access, &value, unit, state);
                    }
                }
            }
            _ => {
                unit.texts.extend(args.iter().filter_map(Arg::text).map(str::to_owned));
                if matches!(name, "nc" | "ncat" | "socat")
                    && args.iter().any(|arg| {
                        arg.prefix().contains("EXEC")
                            || arg.prefix().contains("SYSTEM")
                            || arg.is("-e")
                            || arg.is("-c")
                            || arg.is("--exec")
                            || arg.is("--sh-exec")
                    })
                {
                    unit.opaque("it hands a program to the network");
                }
                self.stranger(args, unit, state);
            }
        }
    }
}
