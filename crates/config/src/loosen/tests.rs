use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::super::node::{ConfigOrigin, Layer};
use super::*;
use permission::{AccessRequest, command_request, evaluate};

fn layer(json: &Json, project: bool) -> ParsedLayer {
    let layer = if project {
        Layer::Project
    } else {
        Layer::Global
    };
    let origin = Arc::new(ConfigOrigin {
        name: "x".into(),
        path: None,
        layer,
        project,
    });
    let mut node = super::super::jsonc::parse(&json.to_string(), &origin, &mut Vec::new()).unwrap();
    super::super::legacy::rewrite(&mut node, &mut Vec::new());
    ParsedLayer { origin, node }
}

/// Returns a home and a project that do not exist.
fn nothing_in(dir: &Path) -> (Environment, Worktree) {
    let home = dir.join("home").display().to_string();
    let environment = Environment::from_vars(BTreeMap::from([("HOME".to_owned(), home)]));
    (environment, Worktree::find(&dir.join("repo"), &[], None))
}

/// Without its loosening keys, a project never allows a call that the user's settings alone stop,
/// for any agent. A project without such keys does not either.
#[test]
fn remaining_settings_loosen_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (environment, worktree) = nothing_in(dir.path());
    let context = permission::PermissionContext::new(&environment, &worktree, &worktree.root);
    let mut random = fastrand::Rng::with_seed(5);
    let keys = [
        "*", "bash", "ba?h", "edit", "e*", "read", "webfetch", "task", "t*", "?_*",
    ];
    let patterns = ["*", "a", "a*", "*a", "a?", "b*", "A*", "a b*"];
    let agents = ["build", "plan", "explore", "general", "mine", "Plan"];
    let mut loose = 0;
    let mut calm = 0;
    for _ in 0..300 {
        let permission = |random: &mut fastrand::Rng| -> Json {
            let mut object = serde_json::Map::new();
            for _ in 0..random.usize(0..3) {
                let action =
                    |random: &mut fastrand::Rng| json!(["allow", "ask", "deny"][random.usize(..3)]);
                let mut value = action(random);
                if random.bool() {
                    let entry = |random: &mut fastrand::Rng| {
                        (patterns[random.usize(..patterns.len())], action(random))
                    };
                    value = (0..random.usize(1..3))
                        .map(|_| entry(random))
                        .collect::<Json>();
                }
                object.insert(keys[random.usize(..keys.len())].into(), value);
            }
            object.into()
        };
        let settings = |random: &mut fastrand::Rng| -> Json {
            let mut object =
                serde_json::Map::from_iter([("permission".to_owned(), permission(random))]);
            if random.bool() {
                let mut agent = json!({ "permission": permission(random) });
                match random.usize(..6) {
                    0 => agent["disable"] = json!(true),
                    1 => agent["mode"] = json!(["primary", "subagent", "all"][random.usize(..3)]),
                    2 => agent["hidden"] = json!(true),
                    _ => {}
                }
                object.insert(
                    "agent".into(),
                    json!({ agents[random.usize(..agents.len())]: agent }),
                );
            }
            if random.usize(..4) == 0 {
                object.insert(
                    "default_agent".into(),
                    json!(agents[random.usize(..agents.len())]),
                );
            }
            object.into()
        };
        let user = settings(&mut random);
        let project = settings(&mut random);
        let mut all = vec![layer(&user, false), layer(&project, true)];
        let alone = join(all[..1].iter());
        let before = access_state(&alone, &[], &alone, &environment, &worktree).agent_rules;
        let found = loosening_keys(&all, &environment, &worktree);
        *(if found.is_empty() {
            &mut calm
        } else {
            &mut loose
        }) += 1;
        remove(&mut all, &found);
        let after =
            access_state(&join(all.iter()), &all, &alone, &environment, &worktree).agent_rules;
        let listed: Vec<&str> = found.iter().map(|key| key.detail.as_str()).collect();
        for _ in 0..40 {
            let key = [
                "bash",
                "edit",
                "read",
                "webfetch",
                "task",
                "x_y",
                "doom_loop",
            ][random.usize(..7)];
            let text: String = (0..random.usize(..4))
                .map(|_| ['a', 'b', 'A', ' '][random.usize(..4)])
                .collect();
            let request = if key == "bash" {
                command_request(&text, &context)
            } else {
                AccessRequest::new(key, text)
            };
            let judge = |agent: &AgentPermissions| {
                evaluate(&agent.rules, &Rules::default(), &request).action
            };
            let pairs = before
                .entries
                .iter()
                .filter_map(|old| Some((old, after.get(&old.name)?)));
            let starts = before.get(&before.default).zip(after.get(&after.default));
            for (old, new) in pairs.chain(starts) {
                let was = judge(old);
                let now = judge(new);
                assert!(
                    now >= was,
                    "{user}\n{project}\n{listed:?}\n{} {} {request:?}: {was:?}, {now:?}",
                    old.name,
                    new.name
                );
            }
        }
    }
    assert!(loose > 30 && calm > 30, "{loose} {calm}");
}

/// Ways to further permissions by agents: the user's settings, the project's, and whether anything
/// of them is withheld.
#[test]
fn loosening_by_agents_is_withheld() {
    let dir = tempfile::tempdir().unwrap();
    let (environment, worktree) = nothing_in(dir.path());
    let asks = json!({ "permission": { "bash": "ask", "edit": "ask" } });
    let all = json!({ "bash": "allow", "edit": "allow" });
    let off = json!({ "agent": { "mine": { "disable": true, "permission": all } } });
    let plans = json!({ "default_agent": "plan" });
    let careful =
        json!({ "agent": { "careful": { "mode": "primary", "permission": { "edit": "deny" } } } });
    let table = [
        (
            &asks,
            json!({ "agent": { "build": { "permission": all } } }),
            true,
        ),
        (
            &asks,
            json!({ "agent": { "build": { "permission": { "edit": "deny" } } } }),
            false,
        ),
        (
            &asks,
            json!({ "agent": { "new": { "mode": "primary", "permission": all } } }),
            true,
        ),
        (
            &asks,
            json!({ "agent": { "new": { "mode": "primary" } } }),
            false,
        ),
        (
            &asks,
            json!({ "agent": { "new": { "mode": "subagent", "permission": all } } }),
            true,
        ),
        (
            &asks,
            json!({ "agent": { "new": { "mode": "subagent", "permission": { "bash": "deny" } } } }),
            false,
        ),
        (
            &off,
            json!({ "agent": { "mine": { "disable": false } } }),
            true,
        ),
        (&plans, json!({ "default_agent": "build" }), true),
        (
            &plans,
            json!({ "command": { "x": { "template": "t", "agent": "build" } } }),
            true,
        ),
        (
            &plans,
            json!({ "command": { "x": { "template": "t", "agent": "plan" } } }),
            false,
        ),
        (
            &plans,
            json!({ "agent": { "plan": { "disable": true } } }),
            true,
        ),
        (
            &careful,
            json!({ "agent": { "careful": { "disable": true } } }),
            true,
        ),
        (
            &careful,
            json!({ "agent": { "careful": { "mode": "subagent" } } }),
            true,
        ),
        (
            &careful,
            json!({ "agent": { "Careful": { "mode": "primary" } } }),
            true,
        ),
        (
            &careful,
            json!({ "agent": { "other": { "mode": "primary" } } }),
            false,
        ),
        (
            &careful,
            json!({ "agent": { "careful": { "hidden": true } } }),
            true,
        ),
    ];
    for (user, project, wanted) in table {
        let found = loosening_keys(
            &[layer(user, false), layer(&project, true)],
            &environment,
            &worktree,
        );
        assert_eq!(!found.is_empty(), wanted, "{user}\n{project}\n{found:?}");
    }
}

/// A rule for all tools that asks or denies is a restriction and takes effect before the project
/// is trusted. Of a deny with exceptions, only exceptions that loosen wait.
#[test]
fn restrictions_for_all_tools_are_not_withheld() {
    let dir = tempfile::tempdir().unwrap();
    let (environment, worktree) = nothing_in(dir.path());
    let reads = json!({ "permission": { "read": { "*secret*": "ask" } } });
    let table = [
        (json!({}), json!({ "*": "ask" }), vec![]),
        (json!({}), json!({ "*": "deny" }), vec![]),
        (
            json!({}),
            json!({ "*": "deny", "read": "allow" }),
            vec!["permission.read"],
        ),
        (json!({}), json!({ "*": "deny", "grep": "allow" }), vec![]),
        (json!({}), json!({ "*": "allow" }), vec!["permission.*"]),
        (reads.clone(), json!({ "*": "ask" }), vec![]),
        (reads, json!({ "*": "deny" }), vec![]),
    ];
    for (user, rules, wanted) in table {
        let project = json!({ "permission": rules });
        let layers = [layer(&user, false), layer(&project, true)];
        let found = loosening_keys(&layers, &environment, &worktree);
        let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
        assert_eq!(keys, wanted, "{user} {project}");
    }
}
