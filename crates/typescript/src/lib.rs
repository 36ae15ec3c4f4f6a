//! Removes the types of a TypeScript module, so that a runtime without that ability can load it.
//! The removed parts become spaces: every line and column stays. Imports that only types use are
//! removed too, as compilers do.
//!
//! Syntax that is more than types (`enum`, `namespace`, parameter properties, `import x = …`) has
//! no such form, and is an error.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use tree_sitter::{Node, Parser};

/// The reason why a module's types cannot be removed. Lines and columns begin at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("line {line}, column {column}: {what} is more than a type")]
    Unsupported {
        line: usize,
        column: usize,
        what: &'static str,
    },
    #[error("line {line}, column {column}: this syntax is not understood")]
    Syntax { line: usize, column: usize },
    /// The grammar does not fit the parser.
    #[error("the parser cannot be started")]
    Parser,
}

/// Returns a module as JavaScript.
///
/// # Errors
/// [`Error`].
pub fn strip(source: &str) -> Result<String, Error> {
    let mut parser = Parser::new();
    let grammar = tree_sitter_typescript::LANGUAGE_TYPESCRIPT;
    parser
        .set_language(&grammar.into())
        .map_err(|_| Error::Parser)?;
    let tree = parser.parse(source, None).ok_or(Error::Parser)?;
    let root = tree.root_node();
    if root.has_error() {
        let (line, column) = line_and_column(&first_error(root));
        return Err(Error::Syntax { line, column });
    }
    let mut stripper = Stripper {
        source,
        out: source.as_bytes().to_vec(),
        used: HashSet::new(),
        imports: Vec::new(),
    };
    check_indexes(root)?;
    // Without recursion, because a module may be nested deeply.
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        if let Some(what) = unsupported(&node) {
            return Err(unsupported_at(&node, what));
        }
        open.extend(stripper.visit(&node).into_iter().rev());
    }
    stripper.remove_unused_imports();
    // Only whole nodes are replaced, so this is still valid UTF-8.
    String::from_utf8(stripper.out).map_err(|_| Error::Parser)
}

/// Refuses types with an index on a new line: the grammar reads one as a part of the type, the
/// language as a statement of its own.
fn check_indexes(root: Node<'_>) -> Result<(), Error> {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        if matches!(node.kind(), "lookup_type" | "array_type")
            && let (Some(before), Some(index)) = (node.child(0), node.child(1))
            && before.end_position().row < index.start_position().row
        {
            return Err(unsupported_at(&index, "an index on a new line"));
        }
        open.extend(children(&node));
    }
    Ok(())
}

fn unsupported_at(node: &Node<'_>, what: &'static str) -> Error {
    let (line, column) = line_and_column(node);
    Error::Unsupported { line, column, what }
}

/// Returns the line and column of a node.
fn line_and_column(node: &Node<'_>) -> (usize, usize) {
    let at = node.start_position();
    (at.row + 1, at.column + 1)
}

fn first_error(root: Node<'_>) -> Node<'_> {
    let mut node = root;
    loop {
        let next = children(&node)
            .into_iter()
            .find(|child| child.has_error() || child.is_missing());
        match next {
            Some(child) if !node.is_error() => node = child,
            _ => return node,
        }
    }
}

fn children<'t>(node: &Node<'t>) -> Vec<Node<'t>> {
    node.children(&mut node.walk()).collect()
}

fn has_token(node: &Node<'_>, token: &str) -> bool {
    children(node).iter().any(|child| child.kind() == token)
}

fn parent_kind<'t>(node: &Node<'t>) -> &'t str {
    node.parent().map_or("", |parent| parent.kind())
}

fn is_parameter(kind: &str) -> bool {
    matches!(kind, "required_parameter" | "optional_parameter")
}

/// Returns the name of syntax that has a meaning when the program runs.
fn unsupported(node: &Node<'_>) -> Option<&'static str> {
    match node.kind() {
        "enum_declaration" => Some("an enum"),
        "internal_module" | "module" if node.is_named() => Some("a namespace"),
        "import_alias" | "import_require_clause" => Some("an import with \"=\""),
        "export_statement" if has_token(node, "=") => Some("an export with \"=\""),
        "accessibility_modifier" | "override_modifier" | "readonly"
            if is_parameter(parent_kind(node)) =>
        {
            Some("a property among the parameters")
        }
        "type_assertion" if begins_body(node) && begins_otherwise(node) => {
            Some("a cast in angle brackets here")
        }
        "binary_expression" if is_generic(node) => Some("a generic here"),
        _ => None,
    }
}

/// Returns the kind of the first token of a node.
fn first_token<'t>(node: &Node<'t>) -> &'t str {
    let mut node = *node;
    while let Some(first) = node.child(0) {
        node = first;
    }
    node.kind()
}

/// Returns whether a node is the beginning of a statement or of the body of an arrow function.
fn begins_body(node: &Node<'_>) -> bool {
    let start = node.start_byte();
    let mut next = node.parent();
    while let Some(parent) = next {
        match parent.kind() {
            "arrow_function" | "expression_statement" | "export_statement" => return true,
            _ if parent.start_byte() == start => next = parent.parent(),
            _ => return false,
        }
    }
    false
}

/// Returns whether the value of a cast in angle brackets would be a block or a declaration without
/// it.
fn begins_otherwise(cast: &Node<'_>) -> bool {
    let value = children(cast).pop();
    value.is_some_and(|value| matches!(first_token(&value), "{" | "function" | "async" | "class"))
}

/// Returns whether the grammar reads arguments of a generic as two comparisons: `f<T>` before a
/// template or at the end of a line.
fn is_generic(node: &Node<'_>) -> bool {
    let is = |node: &Node<'_>, operator: &str| {
        let found = node.child_by_field_name("operator");
        node.kind() == "binary_expression" && found.is_some_and(|found| found.kind() == operator)
    };
    let Some(end) = node.child_by_field_name("operator") else {
        return false;
    };
    let Some(right) = node.child_by_field_name("right") else {
        return false;
    };
    let left = node.child_by_field_name("left");
    is(node, ">")
        && left.is_some_and(|left| is(&left, "<"))
        && (first_token(&right) == "`" || end.end_position().row < right.start_position().row)
}

/// Declarations that exist only for the compiler.
const ONLY_TYPES: [&str; 7] = [
    "interface_declaration",
    "type_alias_declaration",
    "ambient_declaration",
    "function_signature",
    "abstract_method_signature",
    "method_signature",
    "index_signature",
];

/// The characters that end a line.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

struct Stripper<'s> {
    source: &'s str,
    out: Vec<u8>,
    /// The names that values use.
    used: HashSet<&'s str>,
    /// The imports of values, with the nodes that bind a name.
    imports: Vec<Import<'s>>,
}

/// An import of values.
struct Import<'s> {
    statement: Range<usize>,
    names: Vec<ImportedName<'s>>,
}

/// A name that an import binds.
struct ImportedName<'s> {
    name: &'s str,
    /// Its place, with the comma after it, or before it if it is the last one.
    range: Range<usize>,
}

impl<'s> Stripper<'s> {
    /// Removes the types of a node. Returns the children to visit.
    fn visit<'t>(&mut self, node: &Node<'t>) -> Vec<Node<'t>> {
        let kind = node.kind();
        match kind {
            _ if ONLY_TYPES.contains(&kind) => self.remove_statement(node),
            "export_statement" => {
                let is_type = |child: &Node<'_>| {
                    child.kind() == "type" && !child.is_named()
                        || ONLY_TYPES.contains(&child.kind())
                };
                if !children(node).iter().any(is_type) {
                    return children(node);
                }
                self.remove_statement(node);
            }
            "import_statement" => return self.import(node),
            "export_specifier" if has_token(node, "type") => {
                self.blank(with_comma(node));
            }
            "public_field_definition"
                if has_token(node, "declare") || has_token(node, "abstract") =>
            {
                self.remove_statement(node);
            }
            "type_annotation" | "type_predicate_annotation" | "asserts_annotation" => {
                self.remove_annotation(node);
            }
            "type_parameters" | "type_arguments" => self.remove_type_list(node),
            "implements_clause" => self.blank(node.byte_range()),
            "as_expression" | "satisfies_expression" => return self.remove_cast(node),
            "required_parameter" if has_this(node) => self.blank(with_comma(node)),
            "accessibility_modifier" | "override_modifier" => self.remove_modifier(node),
            "readonly" | "abstract" => self.remove_modifier(node),
            "?" if matches!(
                parent_kind(node),
                "optional_parameter" | "public_field_definition" | "method_definition"
            ) =>
            {
                self.blank(node.byte_range());
            }
            "!" if matches!(
                parent_kind(node),
                "non_null_expression" | "variable_declarator" | "public_field_definition"
            ) =>
            {
                self.blank(node.byte_range());
            }
            "identifier" | "shorthand_property_identifier" => {
                self.used.insert(&self.source[node.byte_range()]);
            }
            _ => return children(node),
        }
        Vec::new()
    }

    /// Replaces a part of the module by spaces. Line breaks stay.
    fn blank(&mut self, range: Range<usize>) {
        for byte in &mut self.out[range] {
            if !matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }

    fn put(&mut self, at: usize, byte: u8) {
        if let Some(slot) = self.out.get_mut(at) {
            *slot = byte;
        }
    }

    /// Returns the text after a place, without the spaces and comments there, and whether a line
    /// ends in those.
    fn after(&self, offset: usize) -> (&'s str, bool) {
        let all = &self.source[offset..];
        let mut rest = all.trim_start();
        loop {
            let end = if rest.starts_with("//") {
                rest.find(LINE_ENDS)
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.find("*/").map(|end| end + "/**/".len())
            } else {
                break;
            };
            rest = rest[end.unwrap_or(rest.len())..].trim_start();
        }
        let skipped = &all[..all.len() - rest.len()];
        (rest, skipped.contains(LINE_ENDS))
    }

    /// Removes a statement or a member of a class. The semicolon ends the statement before it.
    fn remove_statement(&mut self, node: &Node<'_>) {
        self.blank(node.byte_range());
        self.put(node.start_byte(), b';');
    }

    /// Removes the type of a parameter, a variable, a field or a result. A field without a value
    /// ends with a semicolon: one with the name `get` or `static` would continue in the next
    /// member. No line may end between the parameters of an arrow function and its arrow, so the
    /// parenthesis moves to the end of the type.
    fn remove_annotation(&mut self, node: &Node<'_>) {
        self.blank(node.byte_range());
        let field = node
            .parent()
            .filter(|parent| parent.kind() == "public_field_definition");
        if field.is_some_and(|field| field.child_by_field_name("value").is_none()) {
            self.put(node.start_byte(), b';');
        }
        let before = node.prev_sibling();
        let parameters = before.filter(|before| before.kind() == "formal_parameters");
        if parent_kind(node) == "arrow_function"
            && let Some(parameters) = parameters
            && self.source[parameters.end_byte()..node.end_byte()].contains('\n')
        {
            self.put(parameters.end_byte() - 1, b' ');
            self.put(node.end_byte() - 1, b')');
        }
    }

    /// Removes the parameters or arguments of a generic. No line may end between `async` and the
    /// parenthesis of an arrow function.
    fn remove_type_list(&mut self, node: &Node<'_>) {
        self.blank(node.byte_range());
        let after = node.next_sibling();
        let parameters = after.filter(|after| after.kind() == "formal_parameters");
        if parent_kind(node) == "arrow_function"
            && let Some(parameters) = parameters
            && self.source[node.start_byte()..parameters.start_byte()].contains('\n')
        {
            self.put(parameters.start_byte(), b' ');
            self.put(node.start_byte(), b'(');
        }
        if parent_kind(node) == "type_assertion" {
            // A line break after `return` would end the statement.
            let end = after.map_or(node.end_byte(), |value| value.start_byte());
            self.out[node.start_byte()..end].fill(b' ');
        }
    }

    /// Removes the type of `x as T` or `x satisfies T`, and returns `x`.
    fn remove_cast<'t>(&mut self, node: &Node<'t>) -> Vec<Node<'t>> {
        let Some(value) = node.child(0) else {
            return Vec::new();
        };
        self.blank(value.end_byte()..node.end_byte());
        // After a type, these begin a new statement; after a value, they would continue it.
        let (next, is_on_new_line) = self.after(node.end_byte());
        if is_on_new_line && next.starts_with(['(', '[', '`']) {
            self.put(node.end_byte() - 1, b';');
        }
        vec![value]
    }

    /// Removes a modifier of a member of a class.
    fn remove_modifier(&mut self, node: &Node<'_>) {
        self.blank(node.byte_range());
        let is_removed = |before: Node<'_>| {
            matches!(
                before.kind(),
                "accessibility_modifier"
                    | "override_modifier"
                    | "readonly"
                    | "abstract"
                    | "comment"
            )
        };
        let is_first = std::iter::successors(node.prev_sibling(), |before| before.prev_sibling())
            .all(is_removed);
        let (next, _) = self.after(node.end_byte());
        if is_first && next.starts_with(['[', '(', '*']) {
            self.put(node.start_byte(), b';');
        }
    }

    /// Removes an import of types, and notes the names of any other.
    fn import<'t>(&mut self, node: &Node<'t>) -> Vec<Node<'t>> {
        if has_token(node, "type") || has_token(node, "typeof") {
            self.remove_statement(node);
            return Vec::new();
        }
        let clause = children(node)
            .into_iter()
            .find(|child| child.kind() == "import_clause");
        let Some(clause) = clause else {
            // An import for its effects, or one with "=".
            return children(node);
        };
        let mut names = Vec::new();
        for part in children(&clause) {
            match part.kind() {
                "identifier" => names.push(self.imported(&part, with_comma(&part))),
                "namespace_import" => {
                    let name = children(&part)
                        .into_iter()
                        .find(|child| child.kind() == "identifier");
                    let comma = part.prev_sibling().filter(|before| before.kind() == ",");
                    let start = comma.map_or(part.start_byte(), |comma| comma.start_byte());
                    let range = start..part.end_byte();
                    names.extend(name.map(|name| self.imported(&name, range)));
                }
                "named_imports" => {
                    for specifier in children(&part) {
                        if specifier.kind() != "import_specifier" {
                            continue;
                        }
                        if has_token(&specifier, "type") || has_token(&specifier, "typeof") {
                            self.blank(with_comma(&specifier));
                            continue;
                        }
                        let name = specifier
                            .child_by_field_name("alias")
                            .or_else(|| specifier.child_by_field_name("name"));
                        names.extend(name.map(|name| self.imported(&name, with_comma(&specifier))));
                    }
                }
                _ => {}
            }
        }
        self.imports.push(Import {
            statement: node.byte_range(),
            names,
        });
        Vec::new()
    }

    fn imported(&self, name: &Node<'_>, range: Range<usize>) -> ImportedName<'s> {
        ImportedName {
            name: &self.source[name.byte_range()],
            range,
        }
    }

    /// Removes the imported names that no value uses.
    fn remove_unused_imports(&mut self) {
        for import in std::mem::take(&mut self.imports) {
            let is_used = |name: &&ImportedName<'_>| self.used.contains(name.name);
            if !import.names.iter().any(|name| is_used(&name)) {
                let start = import.statement.start;
                self.blank(import.statement);
                self.put(start, b';');
                continue;
            }
            let unused: Vec<Range<usize>> = import
                .names
                .iter()
                .filter(|name| !is_used(name))
                .map(|name| name.range.clone())
                .collect();
            for range in unused {
                self.blank(range);
            }
        }
    }
}

/// Returns whether a parameter is `this`, which only the compiler sees.
fn has_this(parameter: &Node<'_>) -> bool {
    let pattern = parameter.child_by_field_name("pattern");
    pattern.is_some_and(|pattern| pattern.kind() == "this")
}

/// Returns the range of a node with the comma after it.
fn with_comma(node: &Node<'_>) -> Range<usize> {
    let after = node.next_sibling();
    let end = after.filter(|after| after.kind() == ",");
    node.start_byte()..end.map_or(node.end_byte(), |comma| comma.end_byte())
}
