//! `docs/api.md` against the source: every public item of both packages has its place there, nothing there is gone, and
//! the library without features pulls in the crates that are listed. The source is read as rustfmt leaves it: what begins
//! in the first column belongs to the file's module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Module path → names of its public items, modules left out.
type Surface = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Name of the item that a line declares, if it is public: `pub struct Name`.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    for before in ["const fn ", "unsafe fn "] {
        if let Some(r) = rest.strip_prefix(before) {
            return Some(word(r));
        }
    }
    for kind in ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "union "] {
        if let Some(r) = rest.strip_prefix(kind) {
            rest = r;
            return Some(word(rest));
        }
    }
    None
}

/// Names that a `pub use` brings: `a::{B, c::D, E as F}` gives B, D and F.
fn used(path: &str) -> Vec<String> {
    let inner = path.split_once('{').map_or(path, |(_, list)| list.trim_end_matches('}'));
    assert!(!inner.contains('{') && !inner.contains('*'), "a `pub use` that this test cannot read: {path}");
    let names = inner.split(',').map(str::trim).filter(|n| !n.is_empty());
    names.map(|n| n.rsplit_once(" as ").map_or_else(|| n.rsplit("::").next().unwrap_or(n), |(_, n)| n).into()).collect()
}

/// Adds the public items of a module's text; `file(name)` gives the text of a module in a file of its own.
fn collect(text: &str, module: &str, file: &dyn Fn(&str) -> (String, PathBuf), out: &mut Surface) {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = declared(line) {
            out.entry(module.to_owned()).or_default().insert(name.to_owned());
        } else if let Some(first) = line.strip_prefix("pub use ") {
            let mut path = first.to_owned();
            while !path.trim_end().ends_with(';') {
                path.push_str(lines.next().expect("a `pub use` ends"));
            }
            out.entry(module.to_owned()).or_default().extend(used(path.trim_end().trim_end_matches(';')));
        } else if let Some(rest) = line.strip_prefix("pub mod ") {
            let inner = format!("{module}::{}", word(rest));
            if rest.trim_end().ends_with('{') {
                let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "}").collect();
                let body: Vec<&str> = body.iter().map(|l| l.strip_prefix("    ").unwrap_or(l)).collect();
                collect(&body.join("\n"), &inner, &|m| panic!("{inner}::{m} in a file"), out);
            } else {
                let (text, path) = file(word(rest));
                collect(&text, &inner, &beside(&path), out);
            }
        }
    }
}

/// Finds the files of a module's children: those of `a.rs` live in `a/`, those of `mod.rs` and `lib.rs` beside it.
fn beside(path: &Path) -> impl Fn(&str) -> (String, PathBuf) {
    let stem = path.file_stem().and_then(|s| s.to_str()).expect("a file name").to_owned();
    let dir = path.parent().expect("a folder").to_owned();
    let base = if ["mod", "lib"].contains(&stem.as_str()) { dir } else { dir.join(stem) };
    move |name| {
        let places = [base.join(format!("{name}.rs")), base.join(name).join("mod.rs")];
        let path = places.into_iter().find(|p| p.is_file()).unwrap_or_else(|| panic!("module {name} has no file"));
        (read(&path), path)
    }
}

fn surface(package: &str, lib: &str) -> Surface {
    let path = root().join(lib);
    let mut out = Surface::new();
    collect(&read(&path), package, &beside(&path), &mut out);
    out
}

/// Rows ``| use | `module` | `Item`, `item` |`` of a document.
fn listed(text: &str) -> Surface {
    let mut out = Surface::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [_, module, items] = cells[..] else { continue };
        let Some(module) = module.strip_prefix('`').and_then(|m| m.strip_suffix('`')) else { continue };
        if module.starts_with("mamba_rl") {
            let items = items.split('`').skip(1).step_by(2).map(str::to_owned);
            out.entry(module.to_owned()).or_default().extend(items);
        }
    }
    out
}

/// What one side has and the other has not, as `module::item`.
fn missing(has: &Surface, lacks: &Surface) -> Vec<String> {
    let none = BTreeSet::new();
    let of = |(m, items): (&String, &BTreeSet<String>)| {
        let other = lacks.get(m).unwrap_or(&none);
        items.difference(other).map(|i| format!("{m}::{i}")).collect::<Vec<_>>()
    };
    has.iter().flat_map(of).collect()
}

#[test]
fn every_public_item_is_in_the_document_and_nothing_else() {
    let mut public = surface("mamba_rl", "src/lib.rs");
    public.append(&mut surface("mamba_rl_envs", "envs/src/lib.rs"));
    for (module, item) in [("mamba_rl", "Error"), ("mamba_rl::network", "Session"), ("mamba_rl_envs", "make")] {
        assert!(public[module].contains(item), "the walk did not see {module}::{item}");
    }
    let document = listed(&read(&root().join("docs/api.md")));
    let silent = missing(&public, &document);
    assert!(silent.is_empty(), "public, but not in docs/api.md:\n{}", silent.join("\n"));
    let gone = missing(&document, &public);
    assert!(gone.is_empty(), "in docs/api.md, but not public:\n{}", gone.join("\n"));
}

#[test]
fn the_walk_reads_what_rustfmt_writes() {
    let text = "pub(crate) struct No;\npub struct Yes<T> {\n    pub field: T,\n}\npub const fn f() {}\npub use a::{\n    B, c::D,\n    E as F,\n};\npub mod inside {\n    pub const G: u8 = 0;\n}\nmod tests {\n    pub fn no() {}\n}\npub mod file;\n";
    let file = |name: &str| (format!("pub trait In_{name} {{}}\n"), PathBuf::from("file.rs"));
    let mut out = Surface::new();
    collect(text, "m", &file, &mut out);
    let names = |m: &str| out[m].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names("m"), ["B", "D", "F", "Yes", "f"]);
    assert_eq!((names("m::inside"), names("m::file")), (vec!["G"], vec!["In_file"]));
    assert_eq!(missing(&out, &listed("| x | `m` | `B`, `D` |")).len(), 7);
    let table = listed("| to train | `mamba_rl::train` | `run`, `plan` (all) |\n| a | b | `c` |\n");
    assert_eq!(missing(&table, &Surface::new()), ["mamba_rl::train::plan", "mamba_rl::train::run"]);
}

/// Names of the crates that the library needs without features, on Linux x86-64, our two left out.
#[test]
fn the_crates_of_the_bare_library_are_listed() {
    let args = ["tree", "--offline", "--locked", "-p", "mamba-rl", "--no-default-features", "-e", "normal"];
    let more = ["--prefix", "none", "--target", "x86_64-unknown-linux-gnu"];
    let tree = Command::new(env!("CARGO")).current_dir(root()).args(args).args(more).output().expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    let lines: BTreeSet<&str> = text.lines().map(|l| l.trim_end_matches(" (*)")).filter(|l| !l.is_empty()).collect();
    assert!(lines.len() <= 100, "{} crates", lines.len());
    let name = |l: &&str| l.split(' ').next().map(str::to_owned);
    let crates: BTreeSet<String> = lines.iter().filter_map(name).filter(|n| !n.starts_with("mamba-rl")).collect();

    let document = read(&root().join("docs/api.md"));
    let list = document.rsplit_once("\n\n").expect("a list at the end").1.replace("-\n", "-");
    let told: BTreeSet<String> =
        list.split([',', '\n']).map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    let differ: Vec<&String> = crates.symmetric_difference(&told).collect();
    assert!(differ.is_empty(), "docs/api.md and cargo tree differ in {differ:?}");
    assert!(document.contains(&format!(", {} crates besides our two", crates.len())), "there are {}", crates.len());
}
