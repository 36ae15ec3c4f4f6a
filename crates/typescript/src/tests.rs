use super::*;

/// Returns a module without types, and without spaces that follow each other.
fn stripped(source: &str) -> String {
    match strip(source) {
        Ok(out) => {
            assert_eq!(out.len(), source.len());
            assert_eq!(out.matches('\n').count(), source.matches('\n').count());
            let lines = out
                .lines()
                .map(|line| line.split(' ').filter(|word| !word.is_empty()).collect());
            let lines: Vec<String> = lines.map(|words: Vec<&str>| words.join(" ")).collect();
            lines.join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn types_become_spaces() {
    for (source, wanted) in [
        ("const a: number = 1", "const a = 1"),
        ("let a!: string, b: Map<string, Set<number>>", "let a , b"),
        (
            "function f<T extends object>(this: Window, a?: T, ...b: any[]): a is T { return a as T }",
            "function f ( a , ...b ) { return a }",
        ),
        (
            "const f = async <T,>(a: T): Promise<T> => a",
            "const f = async (a ) => a",
        ),
        ("f<string>(a!.b!, c satisfies D)!", "f (a .b , c )"),
        ("new Map<string, () => void>()", "new Map ()"),
        ("const a = <any>b", "const a = b"),
        ("x = a ? b : c", "x = a ? b : c"),
        ("a < b && c > d", "a < b && c > d"),
        (
            "const { a, b }: { a: string; b?: number } = c",
            "const { a, b } = c",
        ),
        ("try {} catch (e: unknown) {}", "try {} catch (e ) {}"),
        (
            "for (const a of b as string[]) {}",
            "for (const a of b ) {}",
        ),
        (
            "const s = `${a as string} text: string`",
            "const s = `${a } text: string`",
        ),
        (
            "export const a = { b: c as const, d(e: F): G { return e! } }",
            "export const a = { b: c , d(e ) { return e } }",
        ),
        ("a?.<T>(b)", "a?. (b)"),
        ("é as any; const ü: É = 1", "é ; const ü = 1"),
    ] {
        assert_eq!(stripped(source), wanted, "{source}");
    }
}

#[test]
fn declarations_of_types_are_removed() {
    for (source, wanted) in [
        ("interface A { b: string }\nrun()", ";\nrun()"),
        ("type A = { b: string } | 'c'\nrun()", ";\nrun()"),
        ("export type { A } from './a'\nexport type B = C", ";\n;"),
        (
            "export interface A {}\nexport { a, type B }",
            ";\nexport { a, }",
        ),
        ("declare global { interface Window { a: string } }", ";"),
        (
            "declare const a: string\ndeclare function f(): void",
            ";\n;",
        ),
        (
            "function f(a: string): void\nfunction f(a: any) {}",
            ";\nfunction f(a ) {}",
        ),
        (
            "export function f(a: string): void\nexport function f(a: any) {}",
            ";\nexport function f(a ) {}",
        ),
        // The statement before them does not continue.
        ("const a = b\ntype C = d\n(e)()", "const a = b\n;\n(e)()"),
        ("const a = b as C\n(d)", "const a = b ;\n(d)"),
        ("const a = b as C // c\n(d)", "const a = b ; // c\n(d)"),
        (
            "const a = b as C /* c\n*/ (d)",
            "const a = b ; /* c\n*/ (d)",
        ),
        (
            "const a = () => (<B>{ c: 1 })",
            "const a = () => ( { c: 1 })",
        ),
        ("const a = <B>{ c: 1 }", "const a = { c: 1 }"),
        (
            "const a = () => <B>{ c: 1 }",
            "line 1, column 17: a cast in angle brackets here is more than a type",
        ),
        (
            "const a = b<C>`d`",
            "line 1, column 11: a generic here is more than a type",
        ),
        (
            "const a = b<C>\nd()",
            "line 1, column 11: a generic here is more than a type",
        ),
        ("const a = b < c || d > e", "const a = b < c || d > e"),
        (
            "const a = b as C\n[1].map(d)",
            "line 2, column 1: an index on a new line is more than a type",
        ),
        (
            "export enum A { B }",
            "line 1, column 8: an enum is more than a type",
        ),
        (
            "run()\nnamespace A { export const b = 1 }",
            "line 2, column 1: a namespace is more than a type",
        ),
        (
            "import a = require('a')",
            "line 1, column 8: an import with \"=\" is more than a type",
        ),
        (
            "export = a",
            "line 1, column 1: an export with \"=\" is more than a type",
        ),
        (
            "const = 1",
            "line 1, column 1: this syntax is not understood",
        ),
    ] {
        assert_eq!(stripped(source), wanted, "{source}");
    }
}

#[test]
fn classes_lose_modifiers_and_signatures() {
    for (source, wanted) in [
        (
            "export abstract class A<T> extends B<T> implements C, D {\n  private readonly a: string = 'x'\n  static b?: number\n  declare c: string\n  d!: T\n  [key: string]: unknown\n  constructor(private readonly e: string) { super() }\n}",
            "line 7, column 15: a property among the parameters is more than a type",
        ),
        (
            "abstract class A<T> extends B<T> implements C {\n  private readonly a: string = 'x'\n  static b?: number\n  declare c: string\n  d!: T\n  [key: string]: unknown\n  abstract e(): void\n  f(a: string): void\n  f(a: any) {}\n  protected async *g<U>(a: U): AsyncGenerator<U> {}\n  override get h(): T { return this.#i! }\n  #i?: T\n}",
            "class A extends B {\na = 'x'\nstatic b ;\n;\nd ;\n;\n;\n;\nf(a ) {}\nasync *g (a ) {}\nget h() { return this.#i }\n#i ;\n}",
        ),
        (
            "class A { a = 1\n  private [b] = 2 }",
            "class A { a = 1\n; [b] = 2 }",
        ),
        (
            "class A { a = 1\n  private readonly [b] = 2 }",
            "class A { a = 1\n; [b] = 2 }",
        ),
        (
            "class A {\n  get: () => void\n  b() {}\n  static: C\n  d() {} }",
            "class A {\nget;\nb() {}\nstatic;\nd() {} }",
        ),
    ] {
        assert_eq!(stripped(source), wanted, "{source}");
    }
}

#[test]
fn imports_of_types_are_removed() {
    for (source, wanted) in [
        ("import type { A } from 'a'\nimport 'b'", ";\nimport 'b'"),
        (
            "import { type A, b } from 'a'\nb()",
            "import { b } from 'a'\nb()",
        ),
        // As compilers do, names that only types use.
        (
            "import { A } from 'a'\nexport const b: A = 1",
            ";\nexport const b = 1",
        ),
        (
            "import C, { A, b } from 'a'\nconst d: A<C> = b",
            "import { b } from 'a'\nconst d = b",
        ),
        ("import * as N from 'n'\nlet a: N.B", ";\nlet a"),
        (
            "import D, * as N from 'n'\nlet a: N.B = D",
            "import D from 'n'\nlet a = D",
        ),
        (
            "import { a as b } from 'a'\nexport default { b }",
            "import { a as b } from 'a'\nexport default { b }",
        ),
        (
            "import { B } from 'b'\nclass A extends B {}",
            "import { B } from 'b'\nclass A extends B {}",
        ),
    ] {
        assert_eq!(stripped(source), wanted, "{source}");
    }
}

#[test]
fn types_over_several_lines_leave_functions_whole() {
    let result = "const f = (a: string): {\n  b: string\n} => ({ b: a })";
    assert_eq!(stripped(result), "const f = (a\n\n) => ({ b: a })");
    let generic = "const f = async <\n  T,\n>(a: T) => a";
    assert_eq!(stripped(generic), "const f = async (\n\na ) => a");
    let cast = "function f() { return <\n  T>a }";
    assert!(strip(cast).unwrap().contains("return"));
}

#[test]
fn deep_nesting_is_no_problem() {
    let deep = format!("const a: B = {}1{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(strip(&deep).is_ok());
}
