//! adjutant, a coding agent that runs behind an editor: its command line, and the map of its
//! crates.
//!
//! The table is ordered from the client inwards. A crate uses only crates below it: calls go down,
//! messages come up.
//!
//! | crate | subject |
//! |---|---|
//! | `adjutant` | the command line ([`cli`]) |
//! | `telemetry` | traces and metrics for a collector of OpenTelemetry |
//! | [`remote`] | serving editors on other machines, and connecting to such a server |
//! | [`acp_server`] | the agent's side of ACP: sessions, modes and permission requests of an editor |
//! | [`protocol`] | ACP and JSON-RPC over lines, without knowledge of the agent |
//! | [`session`] | a session as an actor, and the durable loop of its turns |
//! | [`mcp`], [`extensions`] | tools of MCP servers, plugins, custom tools and hooks |
//! | [`tools`] | the built-in tools, and the checks that each call passes |
//! | `textedit` | replacements and patches of texts |
//! | [`project`] | agents, skills, commands, instructions and the system prompt |
//! | [`events`], `pictures` | the messages of a turn, pictures made to fit |
//! | [`export`] | exports of sessions: pages, Markdown, JSON |
//! | [`config`] | the layered settings, and whether a project is trusted |
//! | `lsp` | connections to language servers |
//! | [`providers`] | the catalogue of models, and the wires of their providers |
//! | [`permission`] | rules, the analysis of shell commands, and the verdict on a call |
//! | `typescript` | TypeScript without its types |
//! | `shell_parser` | the syntax tree of a command line |
//! | [`store`], [`snapshot`] | sessions in SQLite or PostgreSQL, the states of files for undo |
//! | [`transcript`] | messages and their parts |
//! | [`sandbox`] | starting programs, with the limits that the system can set |
//! | `prompts` | every text of ours that a model reads |
//! | [`base`] | identifiers, time, files, text, tasks |

pub mod cli;

#[cfg(test)]
mod repository;
