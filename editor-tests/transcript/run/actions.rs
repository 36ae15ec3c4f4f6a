//! Messages of a page's client, and the actions that begin with `#`.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::Run;
use crate::editor::RESPONSE_TIMEOUT;

impl Run {
    pub(in crate::transcript) fn editor_block(
        &mut self,
        body: &str,
        wait: bool,
    ) -> Result<(), String> {
        self.looked = self.log.len();
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix("# ") {
                Some(action) => self.act(action).map_err(|e| format!("{line}: {e}"))?,
                None => {
                    let line = self.fill(line)?;
                    let line = match line.strip_prefix("raw ") {
                        Some(raw) => raw.to_owned(),
                        None => line.replacen('{', r#"{"jsonrpc":"2.0","#, 1),
                    };
                    self.send(&line);
                }
            }
        }
        if wait { self.settled() } else { Ok(()) }
    }

    fn act(&mut self, action: &str) -> Result<(), String> {
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        match (word, rest) {
            ("open", rest) => self.open(rest),
            ("wait", "for all answers") => self.settled(),
            ("wait", rest) => {
                let words = self.fill(rest.strip_prefix("for ").ok_or("wait for what?")?)?;
                let words = self.names.shorten(&words);
                self.until(&words, |run| run.find(&words))
            }
            ("answer", rest) => {
                let (method, answer) = rest.split_once(' ').ok_or("answer what?")?;
                self.answer(method, answer)
            }
            ("hold", rest) => {
                let (path, text) = rest.split_once(' ').ok_or("hold x \"…\"")?;
                let text = serde_json::from_str(text).map_err(|e| e.to_string())?;
                self.buffers.texts.insert(self.project.path(path), text);
                Ok(())
            }
            ("refuse", "writes") => {
                self.buffers.refuse_writes = true;
                Ok(())
            }
            ("let", "the model continue") => {
                self.model.as_ref().ok_or("there is no model")?.resume();
                Ok(())
            }
            ("mode", "changes the system prompt") => {
                self.model
                    .as_ref()
                    .ok_or("there is no model")?
                    .mode_changed();
                Ok(())
            }
            ("files", rest) => {
                let kib = rest
                    .strip_prefix("may grow to ")
                    .and_then(|rest| rest.strip_suffix(" KiB"));
                self.file_limit = Some(
                    kib.and_then(|kib| kib.parse().ok())
                        .ok_or("files may grow to N KiB")?,
                );
                Ok(())
            }
            ("close", "stdin") => {
                self.editor().close_stdin();
                self.settled()?;
                self.leave();
                Ok(())
            }
            ("restart", "") => {
                self.settled()?;
                self.leave();
                Ok(())
            }
            ("kill", "-9") => {
                self.editor().signal(Signal::KILL);
                self.drain();
                // Who is killed this way cannot see to its children; the test does.
                self.project.end_leftovers();
                self.begin_again();
                Ok(())
            }
            ("signal", "TERM") => {
                self.editor().signal(Signal::TERM);
                self.drain();
                self.leave_with(128 + Signal::TERM.as_raw());
                Ok(())
            }
            ("spoil", rest) => self.spoil(rest),
            ("nothing", "runs") => {
                self.settled()?;
                let mut left = self.project.leftovers();
                left.retain(|line| !line.starts_with(env!("CARGO_BIN_EXE_adjutant")));
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(format!("there is still {left:?}"))
                }
            }
            _ => self.act_on_files(word, rest),
        }
    }

    /// Carries out an action on the project's files, and checks of files.
    fn act_on_files(&mut self, word: &str, rest: &str) -> Result<(), String> {
        match (word, rest) {
            ("write", rest) => {
                let (path, text) = rest
                    .strip_prefix("file ")
                    .and_then(|r| r.split_once(' '))
                    .ok_or("write file x \"…\"")?;
                let text: String = serde_json::from_str(text).map_err(|e| e.to_string())?;
                self.project.write(path, &text);
                Ok(())
            }
            ("remove", rest) => {
                let done = match rest.strip_prefix("directory ") {
                    Some(path) => fs::remove_dir_all(self.project.path(path)),
                    None => fs::remove_file(
                        self.project
                            .path(rest.strip_prefix("file ").ok_or("remove file x")?),
                    ),
                };
                done.map_err(|e| e.to_string())
            }
            ("link", rest) => {
                // An existing file is moved away, as an attacker would do.
                let (path, target) = rest.split_once(" to ").ok_or("link x to y")?;
                let path = self.project.path(path);
                let target = self.project.path(target);
                fs::create_dir_all(path.parent().ok_or("link what?")?)
                    .map_err(|e| e.to_string())?;
                if path.exists() {
                    fs::rename(&path, path.with_extension("aside")).map_err(|e| e.to_string())?;
                }
                std::os::unix::fs::symlink(target, path).map_err(|e| e.to_string())
            }
            ("file", rest) if rest.ends_with(" appears") => {
                let path = self.project.path(rest.trim_end_matches(" appears"));
                let end = Instant::now() + RESPONSE_TIMEOUT;
                while !path.exists() {
                    if Instant::now() > end {
                        return Err("waited in vain".into());
                    }
                    // There is no notification of a new file.
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            }
            ("file", rest) => {
                self.settled()?;
                let (path, rest) = rest.split_once(' ').ok_or("file x is \"…\"")?;
                let text = fs::read_to_string(self.project.path(path))
                    .map_err(|e| format!("{path}: {e}"))?;
                let (verb, wanted) = rest.split_once(' ').ok_or("file x is \"…\"")?;
                let wanted: String = serde_json::from_str(wanted).map_err(|e| e.to_string())?;
                let fits = if verb == "is" {
                    text == wanted
                } else {
                    text.contains(&wanted)
                };
                if fits {
                    Ok(())
                } else {
                    Err(format!("it is {text:?}"))
                }
            }
            ("no", rest) => {
                self.settled()?;
                let path = self
                    .project
                    .path(rest.strip_prefix("file ").ok_or("no file x")?);
                if path.exists() {
                    Err("it is there".into())
                } else {
                    Ok(())
                }
            }
            _ => Err("the editor cannot do this".into()),
        }
    }

    /// Runs `open a session`, with the handshake before the first one. The messages are checked
    /// like all others, but not shown.
    fn open(&mut self, how: &str) -> Result<(), String> {
        self.settled()?;
        let before = self.received.len();
        let files = how.contains("with fs");
        let fs = json!({ "readTextFile": files, "writeTextFile": files });
        let mut capabilities = json!({ "fs": fs });
        if how.contains("with forms") {
            capabilities["elicitation"] = json!({ "form": {} });
            if how.contains("and addresses") {
                capabilities["elicitation"]["url"] = json!({});
            }
        }
        let params = if self.second || how.contains("in version 2") {
            capabilities
                .as_object_mut()
                .ok_or("no capabilities")?
                .shift_remove("fs");
            json!({ "protocolVersion": 2, "capabilities": capabilities, "info": { "name": "page", "version": "1" } })
        } else {
            json!({ "protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": { "name": "page", "version": "1" } })
        };
        let initialize = json!({ "jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params });
        let connect = how.starts_with("a connection");
        if self.editor.is_none() || connect {
            self.send(&initialize.to_string());
            self.settled()?;
        }
        if !connect {
            let inside = how
                .strip_prefix("a session in ")
                .filter(|inside| !inside.starts_with("version "));
            let inside = inside.unwrap_or_default();
            let cwd = self.project.cwd().join(inside);
            let cwd = cwd.display().to_string();
            let params = json!({ "cwd": cwd.trim_end_matches('/'), "mcpServers": [] });
            let new = json!({ "jsonrpc": "2.0", "id": "open", "method": "session/new", "params": params });
            self.send(&new.to_string());
            self.settled()?;
        }
        for line in self.received.split_off(before) {
            if line.value.get("error").is_some() {
                return Err(line.value.to_string());
            }
        }
        Ok(())
    }

    /// Answers the agent's oldest open request of a kind.
    fn answer(&mut self, method: &str, answer: &str) -> Result<(), String> {
        let name = match method {
            "permission" => "session/request_permission",
            "form" => "elicitation/create",
            method => method,
        };
        let name = name.to_owned();
        self.until(&format!("a request {name}"), |run| {
            run.asks.iter().any(|(method, _)| *method == name)
        })?;
        let at = self
            .asks
            .iter()
            .position(|(method, _)| *method == name)
            .unwrap_or_default();
        let Some((_, id)) = self.asks.remove(at) else {
            return Err("no such request".into());
        };
        let parse =
            |text: &str| serde_json::from_str::<Value>(text).map_err(|e| format!("{text}: {e}"));
        let reply = match answer.strip_prefix("error ") {
            Some(error) => json!({ "jsonrpc": "2.0", "id": id, "error": parse(error)? }),
            None => {
                let result = match (method, answer) {
                    ("permission", "cancelled") => json!({ "outcome": { "outcome": "cancelled" } }),
                    ("permission", option) if !option.starts_with('{') => {
                        json!({ "outcome": { "outcome": "selected", "optionId": option } })
                    }
                    (_, "null") => Value::Null,
                    (_, result) => parse(result)?,
                };
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            }
        };
        self.send(&reply.to_string());
        Ok(())
    }

    /// Damages stored data: `the sessions`, or `the version`.
    fn spoil(&mut self, what: &str) -> Result<(), String> {
        self.settled()?;
        self.leave();
        let data = self.project.path("~/.local/share/adjutant");
        crate::corrupt::corrupt(&data, what)
    }

    /// Searches received text that was not searched before.
    fn find(&mut self, text: &str) -> bool {
        match self.log[self.looked..]
            .iter()
            .position(|line| line.contains(text))
        {
            Some(at) => {
                self.looked += at + 1;
                true
            }
            None => false,
        }
    }
}
