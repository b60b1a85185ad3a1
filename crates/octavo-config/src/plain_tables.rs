//! TOML whose tables are all plain ones, so that layers of it merge.

use toml_edit::{DocumentMut, Item, Table, Value};

/// The tables of a text, all plain ones.
pub fn plain_tables(text: &str) -> Result<Table, toml_edit::TomlError> {
    let mut tables = text.parse::<DocumentMut>()?.into_table();
    normalize_tables(&mut tables);
    Ok(tables)
}

/// Makes all tables plain ones, in the order in which they are written.
pub fn normalize_tables(table: &mut Table) {
    table.set_dotted(false);
    table.set_position(None);
    for (mut key, item) in table.iter_mut() {
        if item.is_inline_table() {
            let Item::Value(Value::InlineTable(inline)) = std::mem::take(item) else {
                unreachable!("it is an inline table")
            };
            *item = Item::Table(inline.into_table());
            key.fmt();
        }
        if let Some(inner) = item.as_table_mut() {
            normalize_tables(inner);
        }
    }
}
