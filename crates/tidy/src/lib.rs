//! Reads the sources of this repository as a compiler does, for tests of how they are laid out.
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("this crate lies in crates/")
}

/// A file of the repository, as text.
pub fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of all crates.
pub fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("it is there");
    let mut names: Vec<String> =
        folders.map(|f| f.expect("readable").file_name().into_string().expect("our names are plain")).collect();
    names.sort();
    names
}

/// A module that is a file, or a folder with one.
pub struct Module {
    /// Its path in the crate, such as `["source", "moving"]`; the crate's root has none.
    pub path: Vec<String>,
    /// Its file.
    pub file: PathBuf,
    /// The modules that it declares, in the order in which it does.
    pub children: Vec<String>,
    /// Modules of the crate that it names, and how: paths as they stand, resolved to the crate's root.
    pub uses: BTreeSet<Vec<String>>,
    /// Types of which it has inherent methods, with their names.
    pub methods: BTreeMap<String, BTreeSet<String>>,
    /// Methods that it calls, with the receiver: `self`, or the name of the field or variable.
    pub calls: BTreeSet<(String, String)>,
}

/// All modules of a crate, by path.
pub fn modules(name: &str) -> BTreeMap<Vec<String>, Module> {
    let src = root().join("crates").join(name).join("src");
    let mut all = BTreeMap::new();
    for start in ["lib.rs", "main.rs"] {
        let file = src.join(start);
        if file.exists() {
            // A program beside a library of the same crate has no modules of its own here.
            read(&mut all, Vec::new(), file, &src);
            break;
        }
    }
    all
}

fn read(all: &mut BTreeMap<Vec<String>, Module>, path: Vec<String>, file: PathBuf, folder: &Path) {
    let source = text(&file);
    let parsed = syn::parse_file(&source).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut module = Module {
        path: path.clone(),
        file,
        children: Vec::new(),
        uses: BTreeSet::new(),
        methods: BTreeMap::new(),
        calls: BTreeSet::new(),
    };
    Reader { module: &mut module, depth: 0 }.visit_file(&parsed);
    for child in module.children.clone() {
        let one = folder.join(format!("{child}.rs"));
        let (file, below) = if one.exists() {
            (one, folder.join(&child))
        } else {
            (folder.join(&child).join("mod.rs"), folder.join(&child))
        };
        read(all, [path.clone(), vec![child]].concat(), file, &below);
    }
    all.insert(path, module);
}

/// Whether an item is only there for tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let syn::Meta::List(list) = &a.meta else { return a.path().is_ident("test") };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg")
            && words.split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
            && !words.starts_with("not")
    })
}

struct Reader<'a> {
    module: &'a mut Module,
    /// Modules inside of the file that are around what is being read.
    depth: usize,
}

impl Reader<'_> {
    /// Takes note of a path, with what stands before it in a tree of `use`.
    fn path(&mut self, words: &[String]) {
        let mut at = match words.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => {
                let ups = words.iter().take_while(|w| *w == "super").count().saturating_sub(self.depth);
                if ups == 0 {
                    return;
                }
                let own = &self.module.path;
                own[..own.len().saturating_sub(ups)].to_vec()
            }
            _ => return,
        };
        at.extend(words.iter().skip_while(|w| *w == "crate" || *w == "super").cloned());
        self.module.uses.insert(at);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.path(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.path(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.path(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(before, item)),
        }
    }

    /// Paths in what is given to a macro, which nothing parses.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut words: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.path(&words);
                        words.clear();
                    }
                    words.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => colons = 0,
            }
        }
        self.path(&words);
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {
        // `pub(super)` uses nothing.
    }
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        if item.content.is_none() {
            self.module.children.push(item.ident.to_string());
            return;
        }
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let (None, syn::Type::Path(of)) = (&item.trait_, &*item.self_ty) {
            let of = of.path.segments.last().expect("a type has a name").ident.to_string();
            for part in &item.items {
                if let syn::ImplItem::Fn(method) = part {
                    self.module.methods.entry(of.clone()).or_default().insert(method.sig.ident.to_string());
                }
            }
        }
        visit::visit_item_impl(self, item);
    }
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }
    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.path(&words);
        visit::visit_path(self, path);
    }
    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let receiver = match &*call.receiver {
            syn::Expr::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            syn::Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => Some(name.to_string()),
                syn::Member::Unnamed(_) => None,
            },
            _ => None,
        };
        if let Some(receiver) = receiver {
            self.module.calls.insert((receiver, call.method.to_string()));
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_macro(&mut self, mac: &'a syn::Macro) {
        // A list of policies, fault sources or kinds of tiers declares its modules: `"name" module::Type`.
        if ["policies", "sources", "kinds"].iter().any(|list| mac.path.is_ident(list)) {
            let mut tokens = mac.tokens.clone().into_iter().peekable();
            while let Some(token) = tokens.next() {
                if let (TokenTree::Ident(module), Some(TokenTree::Punct(p))) = (&token, tokens.peek())
                    && p.as_char() == ':'
                    && module.to_string().starts_with(char::is_lowercase)
                {
                    self.module.children.push(module.to_string());
                }
            }
        }
        self.tokens(mac.tokens.clone());
    }
}
