//! `tar`: what it packs, where it unpacks, and which commands its options carry.

use super::expand::Arg;
use super::options::Options;
use super::state::State;
use super::walk::Walk;
use super::{Effect, Unit};
use crate::permission::paths::Access;

impl Walk<'_> {
    pub(super) fn tar(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let mut args = args.to_vec();
        // `tar xf a.tar`: the old spelling without a dash.
        if let Some(first) = args.first()
            && let Some(text) = first.text()
            && !text.starts_with('-')
        {
            args[0] = Arg::exact(format!("-{text}"));
        }
        let long = [
            "file",
            "directory",
            "exclude",
            "exclude-from",
            "files-from",
            "use-compress-program",
            "to-command",
            "checkpoint-action",
            "info-script",
            "new-volume-script",
            "rsh-command",
            "rmt-command",
            "transform",
            "strip-components",
            "owner",
            "group",
            "mode",
            "index-file",
        ];
        let options = Options::read(&args, "fCTXILbgKNVHF", &long);
        let runs = [
            "-I",
            "--use-compress-program",
            "--to-command",
            "--info-script",
            "-F",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
            "--checkpoint-action",
        ];
        for flag in options.all(&runs) {
            unit.danger(&flag.name);
            unit.effect_at_least(Effect::Unproven);
            let Some(value) = flag.value.clone() else { continue };
            if flag.name.starts_with("--checkpoint") {
                if value.prefix().starts_with("exec=") {
                    self.text(&value.after(5), unit, true, true, state);
                }
            } else {
                self.text(&value, unit, true, true, state);
            }
        }
        for flag in options.all(&["--index-file"]) {
            unit.danger(&flag.name);
            let file = flag.value.clone().unwrap_or_else(|| Arg::unknown(&flag.name));
            self.touch(Access::Edit, &file, unit, state);
        }
        let archive = options.find(&["-f", "--file"]).and_then(|flag| flag.value.clone());
        let creates = options.has(&["-c", "--create", "-r", "--append", "-u", "--update", "--delete", "-A"]);
        let lists = options.has(&["-t", "--list"]);
        if let Some(archive) = &archive {
            if archive.text().is_some_and(|text| text.contains(':') && !options.has(&["--force-local"])) {
                unit.network = true;
                unit.effect_at_least(Effect::Unproven);
            } else {
                self.touch(if creates { Access::Edit } else { Access::Read }, archive, unit, state);
            }
        }
        let mut inner = state.clone();
        for dir in options.all(&["-C", "--directory"]) {
            if let Some(dir) = dir.value.clone() {
                self.chdir(Some(&dir), unit, &mut inner);
            }
        }
        if creates {
            for arg in &options.operands {
                self.touch(Access::Read, arg, unit, &inner);
                self.below(arg, &Options::default(), unit, &inner);
            }
            unit.effect_at_least(if archive.as_ref().is_some_and(|arg| arg.is("/dev/null") || arg.is("-")) {
                Effect::Reads
            } else {
                Effect::Writes
            });
        } else if lists {
            unit.effect_at_least(Effect::Reads);
        } else if options.has(&["-O", "--to-stdout"]) {
            unit.effect_at_least(Effect::Unproven);
        } else {
            unit.effect = Effect::Writes;
            let dot = Arg::exact(".");
            self.touch(Access::Edit, &dot, unit, &inner);
            self.links_to(&Arg::unknown("."), &inner);
            unit.plans_only = false;
        }
    }
}
