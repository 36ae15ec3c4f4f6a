//! Invariants that hold for every text judged as a command line, whatever its origin. Used by
//! tests, and by the fuzzer in `editor-tests/fuzz`.

use std::path::PathBuf;

use super::{Action, PermissionContext, Rules, Verdict, command_request, evaluate};

/// Returns the invariant that judging `line` breaks, or `None` if all hold.
///
/// The caller has to check that this terminates and does not panic.
pub fn broken(line: &str) -> Option<String> {
    let all = Rules::built_in(&[("*", "*", Action::Allow), ("bash", "rm *", Action::Deny)]);
    let reads = Rules::built_in(&[("*", "*", Action::Allow), ("edit", "*", Action::Deny)])
        .then(&Rules::read_only());
    let free = judge(&all, line);
    let plan = judge(&reads, line);
    if let Some(text) = removal_in(&free)
        && free.action != Action::Deny
    {
        return Some(format!(
            "{text:?} is in it, which a rule denies, and the verdict is {:?}",
            free.action
        ));
    }
    if let Some(text) = removal_in(&plan)
        && plan.action == Action::Allow
    {
        return Some(format!(
            "{text:?} is in it, and an agent that only reads may run it"
        ));
    }
    if plan.action == Action::Allow && !plan.is_proven_read_only {
        return Some("an agent that only reads may run what is not proven to only read".into());
    }
    // An appended line is a command of its own whatever precedes it, unless the whole is not
    // analysed. A here-document may end at that very line.
    if !line.contains("<<") {
        let longer = format!("{line}\n\nrm victim");
        for (rules, who) in [(&all, "a rule denies rm"), (&reads, "the agent only reads")] {
            if judge(rules, &longer).action == Action::Allow {
                return Some(format!(
                    "{who}, and a line with `rm victim` after it is allowed"
                ));
            }
        }
    }
    None
}

/// Returns the text of the first unit that runs `rm`.
fn removal_in(verdict: &Verdict) -> Option<String> {
    let is_rm = |program: &String| {
        program
            .rsplit('/')
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("rm"))
    };
    let unit = verdict
        .units
        .iter()
        .find(|unit| unit.program.as_ref().is_some_and(is_rm))?;
    Some(unit.text.clone())
}

/// Judges a line in a project that does not exist, so that the state of the disk has no influence.
fn judge(rules: &Rules, line: &str) -> Verdict {
    let root = PathBuf::from("/nothing-is-here");
    let context = PermissionContext {
        cwd: root.clone(),
        root,
        path: ["/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
        data_dir: "/no-data-here".into(),
        ..PermissionContext::default()
    };
    evaluate(rules, &Rules::default(), &command_request(line, &context))
}
