use std::path::Path;

use super::*;

/// Compares a text with a file below `src`; `UPDATE_GOLDEN=1` writes it anew.
#[track_caller]
pub(crate) fn golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder can be made");
        std::fs::write(&path, text).expect("the golden file can be written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let first = golden.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        golden == text,
        "{file} differs, first here: {first:?}\nTo accept: UPDATE_GOLDEN=1 cargo test -p orlop-lifecycle"
    );
}

const COLUMNS: [Column; 4] =
    [Column::left("NAME"), Column::right("SIZE"), Column::left("EMPTY"), Column::wide("DRIVER")];

fn table() -> Table<4> {
    let mut table = Table::new(COLUMNS);
    table.push(["a".into(), "1Gi".into(), Cell::default(), "d".into()]);
    table.push([Cell::new("long-name", Tone::Bad), "12Gi".into(), Cell::default(), Cell::default()]);
    table
}

#[test]
fn columns_line_up_and_an_empty_one_is_left_out() {
    assert_eq!(table().render(Look::PLAIN), "NAME       SIZE\na           1Gi\nlong-name  12Gi\n");
    let wide = "NAME       SIZE  DRIVER\na           1Gi  d\nlong-name  12Gi\n";
    assert_eq!(table().render(Look::WIDE), wide);
}

#[test]
fn colours_change_no_column() {
    let painted = table().render(Look { paint: Paint::Colours, ..Look::WIDE });
    let bare = painted.replace("\u{1b}[1m", "").replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
    assert!(painted.contains("\u{1b}[31mlong-name\u{1b}[0m  12Gi"), "{painted:?}");
    let trimmed: String = bare.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(trimmed, table().render(Look::WIDE));
}

#[test]
fn what_others_wrote_moves_no_cursor() {
    assert_eq!(Cell::new("a\u{1b}[2Jb\nc", Tone::Plain).text, "a [2Jb c");
}

#[test]
fn amounts_are_short() {
    let rows = [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (64 << 20, "64Mi"),
        ((1 << 30) - 1, "1024Mi"),
        (u64::MAX, "16Ei"),
    ];
    for (amount, text) in rows {
        assert_eq!(bytes(amount), text, "{amount}");
    }
}

#[test]
fn a_share_of_nothing_is_none_and_the_first_byte_shows() {
    assert_eq!((percent(1, 1 << 40), percent(0, 0), percent(5, 4)), (Some(1), None, Some(125)));
}

#[test]
fn on_a_terminal_sentences_are_broken_beside_their_row_or_below_it() {
    let columns = [Column::left("NAME"), Column::prose("WHY")];
    let mut table = Table::new(columns);
    table.push(["pvc/a".into(), Cell::new("one two three four five six seven eight", Tone::Plain)]);
    table.push(["pvc/b".into(), Cell::EMPTY]);
    let at = |width| table.render(Look { width: Some(width), ..Look::PLAIN });
    let beside = "NAME   WHY\npvc/a  one two three four five six seven\n       eight\npvc/b\n";
    assert_eq!(at(43), beside);
    assert_eq!(at(24), "NAME   WHY\npvc/a\n    one two three four\n    five six seven eight\npvc/b\n");
    assert_eq!(at(200), table.render(Look::PLAIN), "what fits stays as it is");
}
