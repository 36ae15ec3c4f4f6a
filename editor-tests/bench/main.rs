//! Benchmarks of what must be fast, one file per area. Run them with
//! `cargo bench --profile bench-fast`, some of them with `cargo bench --profile bench-fast NAME`.

mod config;
mod model;
mod permissions;
mod sandbox;
mod snapshot;
mod store;

fn main() {
    divan::main();
}
