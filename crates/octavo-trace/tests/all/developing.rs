//! The example of docs/developing/traces.md is the code that the crate compiles and tests.

#[test]
fn page_shows_the_format_as_it_is_tested() {
    let code = include_str!("../../src/formats/example.rs");
    let page = include_str!("../../../../docs/developing/traces.md");
    assert!(
        page.contains(&format!("```rust,ignore\n{code}```")),
        "docs/developing/traces.md differs"
    );
}
