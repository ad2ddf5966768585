# cargo: a library, a program and tests are built without a network, and changed.
set -eu
# Where rustup keeps its toolchains does not depend on the home of this row.
export RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} CARGO_HOME=$APP_DIR/home
export CARGO_TERM_COLOR=never CARGO_NET_OFFLINE=true
unset CARGO_TARGET_DIR RUSTFLAGS
mkdir home
cargo new --quiet --vcs none row
cd row
cat > src/lib.rs <<'TEXT'
//! A row.
/// Twice.
pub fn twice(x: u64) -> u64 { x * 2 }
#[test]
fn twice_is_even() { assert_eq!(twice(21) % 2, 0); }
TEXT
echo 'fn main() { println!("{}", row::twice(21)); }' > src/main.rs
echo 'fn main() { println!("cargo:rustc-env=MADE=1"); }' > build.rs
cargo run --quiet --offline
cargo test --quiet --offline 2>/dev/null | grep 'test result' | head -n 1 | cut -d';' -f1
cargo build --offline 2>&1 | grep -c Compiling || true
sed -i 's/x \* 2/x * 3/' src/lib.rs
cargo run --quiet --offline
cargo build --release --quiet --offline && ./target/release/row
find target -name 'row*' -type f | wc -l
cargo clean --quiet 2>/dev/null || cargo clean 2>/dev/null
ls -A
