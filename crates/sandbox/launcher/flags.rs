//! The flags of the compiler that the launcher shares with the program that contains it.

/// Returns those flags of a build that say for which machine and with which linker it is made. Others, such as for
/// instrumentation, dynamic linking or the contents of libraries, are for the program alone: some exclude the
/// launcher's own flags.
pub(crate) fn shared(flags: &[&str]) -> Vec<String> {
    const CODEGEN: [&str; 10] = [
        "code-model",
        "force-frame-pointers",
        "link-arg",
        "link-args",
        "link-self-contained",
        "linker",
        "linker-flavor",
        "relocation-model",
        "target-cpu",
        "target-feature",
    ];
    let is_shared = |option: &str| {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        CODEGEN.contains(&name.replace('_', "-").as_str())
    };
    let mut found = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let option = match flag.strip_prefix("--codegen=").or(flag.strip_prefix("-C")) {
            Some("") => flags.next().copied(),
            None if *flag == "--codegen" => flags.next().copied(),
            option => option,
        };
        if let Some(option) = option.filter(|option| is_shared(option)) {
            found.extend(["-C".to_owned(), option.to_owned()]);
        } else if *flag == "--sysroot" {
            let path = flags.next().map(ToString::to_string);
            found.extend(path.map(|path| format!("--sysroot={path}")));
        } else if flag.starts_with("--sysroot=") {
            found.push(flag.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_about_machine_and_linker_are_shared() {
        for (flags, wanted) in [
            ("", ""),
            ("-C embed-bitcode=no", ""),
            ("-C prefer-dynamic", ""),
            (
                "-Cprefer-dynamic=yes -Ctarget-cpu=native",
                "-C target-cpu=native",
            ),
            ("-C instrument-coverage --cfg fuzzing -Z threads=2 -g", ""),
            (
                "-C lto=off -C opt-level=0 -C debuginfo=2 -C panic=unwind",
                "",
            ),
            (
                "-C target-feature=+crt-static",
                "-C target-feature=+crt-static",
            ),
            (
                "--codegen linker=clang --codegen=link-arg=-fuse-ld=lld -C link_arg=-s",
                "-C linker=clang -C link-arg=-fuse-ld=lld -C link_arg=-s",
            ),
            ("--sysroot /a --sysroot=/b", "--sysroot=/a --sysroot=/b"),
            ("-C", ""),
            ("-L /lib -C relocation-model=pic", "-C relocation-model=pic"),
        ] {
            let flags: Vec<&str> = flags.split_whitespace().collect();
            assert_eq!(shared(&flags).join(" "), wanted, "{flags:?}");
        }
    }
}
