//! Program text of languages that are no shell's. It is not taken apart: names of denied programs are
//! searched for in it, and here, whether it starts programs under names that cannot be searched for,
//! because it puts them together first.

/// What starts programs, or runs text as a program, in the languages people hand to interpreters.
const STARTS: [&str; 40] = [
    "system",
    "popen",
    "popen2",
    "popen3",
    "Popen",
    "run",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "exec",
    "execSync",
    "execFile",
    "execFileSync",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "execlpe",
    "spawn",
    "spawnSync",
    "spawnv",
    "spawnve",
    "spawnvp",
    "spawnl",
    "spawnlp",
    "posix_spawn",
    "posix_spawnp",
    "capture2",
    "capture2e",
    "capture3",
    "pipeline",
    "passthru",
    "shell_exec",
    "proc_open",
    "execute",
];

/// What makes text or names into code: nothing that follows can be searched for.
const MAKES: [&str; 16] = [
    "eval",
    "__import__",
    "import_module",
    "getattr",
    "b64decode",
    "decode_base64",
    "fromhex",
    "unhexlify",
    "atob",
    "fromCharCode",
    "instance_eval",
    "class_eval",
    "module_eval",
    "public_send",
    "__send__",
    "loadstring",
];

/// Whether a program text starts programs other than by names that stand in it as they are.
pub(super) fn starts_computed(text: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    while let Some(start) = text[at..].find(word).map(|start| at + start) {
        let end = text[start..].find(|c| !word(c)).map_or(text.len(), |length| start + length);
        let (name, rest) = (&text[start..end], &text[end..]);
        at = end;
        let argument = rest.trim_start();
        // `system "x"` calls as well, in perl and ruby; elsewhere such words are prose.
        let bare = matches!(name, "system" | "exec" | "eval" | "spawn") && rest.starts_with(char::is_whitespace);
        let called = rest.starts_with('(')
            || (bare && (argument.starts_with(['(', '"', '\'', '`', '$', '@', '%']) || argument.starts_with("qq")));
        if (MAKES.contains(&name) && called) || (STARTS.contains(&name) && called && !plain(rest)) {
            return true;
        }
        // Texts made of numbers.
        if matches!(name, "chr" | "pack") && argument.starts_with(['(', '"', '\'']) {
            return true;
        }
    }
    false
}

/// Whether the first argument of a call is one text without escapes, or a list that begins with one,
/// and nothing is joined to it.
fn plain(rest: &str) -> bool {
    let rest = rest.trim_start().trim_start_matches(['(', '[', '{']).trim_start();
    if rest.starts_with(')') {
        // Nothing is given to it.
        return true;
    }
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')) else { return false };
    let inner = &rest[1..];
    let Some(end) = inner.find(quote) else { return false };
    let (text, after) = (&inner[..end], inner[end + 1..].trim_start());
    !text.contains(['\\', '$', '{', '#', '%', '@'])
        && (after.is_empty() || after.starts_with([')', ',', ']', ';', '}', '\n']))
}

#[cfg(test)]
mod tests {
    use super::starts_computed;

    #[test]
    fn what_is_put_together() {
        let plain = [
            "print(1)",
            "import os; os.system('touch x')",
            "import subprocess;subprocess.run(['touch', 'x'], check=True)",
            "system(\"touch x\")",
            "system \"touch\", \"x\";",
            "require('child_process').execSync('touch x')",
            "s/a/b/",
            "print \"the system\";",
            "puts 'run it'",
            "print('please run (it) now, or eval it')",
        ];
        for text in plain {
            assert!(!starts_computed(text), "{text}");
        }
        let computed = [
            "import os; os.system('r' + 'm x')",
            "import os; os.system(\"\\x72m x\")",
            "import os; os.system(f'{a}m x')",
            "import os; os.system(c)",
            "import subprocess as s; s.run([x, 'y'])",
            "exec(open('x').read())",
            "eval('x')",
            "getattr(os, 'sys' + 'tem')('x')",
            "__import__('os').system('x')",
            "import base64; print(base64.b64decode('cm0='))",
            "system(\"r\" . \"m x\")",
            "system($x)",
            "exec pack('H*', '726d')",
            "require('child_process').execSync('r' + 'm x')",
            "require('child_process').execSync(`${a}m x`)",
            "system('r' 'm x')",
            "system(chr(114) + 'm')",
        ];
        for text in computed {
            assert!(starts_computed(text), "{text}");
        }
    }
}
